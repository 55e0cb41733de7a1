from thalweg import theory


def test_all_public_names_exist_once():
    assert [name for name in theory.__all__ if not hasattr(theory, name)] == []
    assert len(set(theory.__all__)) == len(theory.__all__)


def test_all_public_names_have_docstrings():
    assert [name for name in theory.__all__ if not getattr(theory, name).__doc__] == []
