from thalweg import theory


def test_every_name_on_the_menu_exists_and_none_is_listed_twice():
    assert [name for name in theory.__all__ if not hasattr(theory, name)] == []
    assert len(set(theory.__all__)) == len(theory.__all__)


def test_every_name_on_the_menu_says_what_it_is():
    assert [name for name in theory.__all__ if not getattr(theory, name).__doc__] == []
