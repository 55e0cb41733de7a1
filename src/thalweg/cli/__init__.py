"""The command line: ``thalweg run``, ``compare``, ``reproduce``, ``serve`` and others."""
