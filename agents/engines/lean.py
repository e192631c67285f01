"""A quicker import of `transformers`."""

from __future__ import annotations

import sys

_UNUSED = ("sklearn", "scipy")


def import_transformers() -> None:
    """Import what a policy needs of `transformers`, without scikit-learn and SciPy, which take long to import.

    `transformers` imports both, if they are there, for a way of assisted sampling and for losses of object detection,
    which nothing here uses. In this process it goes on believing that they are missing; others can import them. Where
    it was imported before, and knows better, they are imported.
    """
    hidden = [name for name in _UNUSED if name not in sys.modules and not _is_known(name)]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes an import fail
    try:
        import transformers.generation.candidate_generator
        import transformers.modeling_utils  # noqa: F401
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def _is_known(name: str) -> bool:
    """Whether `transformers` has looked for a package already, whose answer it keeps."""
    asked = getattr(sys.modules.get("transformers.utils.import_utils"), f"is_{name}_available", None)
    return asked is not None and (not hasattr(asked, "cache_info") or asked.cache_info().currsize > 0)
