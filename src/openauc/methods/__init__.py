"""Methods by name: one file each, named as on the command line and ending in ``METHOD = ...``.

Nothing here imports torch before a method is loaded, so listing names is cheap.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openauc._validation import check_choice

if TYPE_CHECKING:
    import numpy as np

    from openauc.methods.base import Method
    from openauc.models.base import Backbone

__all__ = ["load_method", "make_method", "method_names", "method_options"]

_NOT_METHODS = ("base", "scores")


def method_names() -> list[str]:
    """Names of the methods in this folder, sorted.

    >>> "openauc" in method_names()
    True
    """
    return sorted(file.name for file in pkgutil.iter_modules(__path__) if file.name not in _NOT_METHODS)


def load_method(name: str) -> type[Method]:
    """Class of the method called ``name``: a file in this folder, or ``pkg.module`` for one kept elsewhere.

    Raises
    ------
    ValueError
        If there is no such method, or if the module does not end in ``METHOD = <a subclass of Method>``.

    Examples
    --------
    >>> load_method("openauc").__name__
    'OpenAUC'
    """
    from openauc.methods.base import Method

    if "." in name:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"method {name!r} cannot be imported ({error}); pass the name of an installed module, or one "
                f"of {', '.join(method_names())}."
            ) from error
    else:
        module = importlib.import_module(f"{__name__}.{check_choice('method', name, method_names())}")
    method = getattr(module, "METHOD", None)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise ValueError(f"{name!r} has no METHOD that is a subclass of Method; end it in METHOD = YourMethod.")
    return method


def method_options(method: type[Method]) -> dict[str, Any]:
    """Keyword options of a method and their defaults.

    >>> method_options(load_method("ce_plus"))["temperature"]
    1.0
    """
    parameters = inspect.signature(method).parameters.values()
    return {option.name: option.default for option in parameters if option.default is not option.empty}


def make_method(
    method: str | type[Method],
    backbone: Backbone,
    num_classes: int,
    *,
    rng: np.random.Generator,
    method_args: Mapping[str, Any] | None = None,
) -> Method:
    """Build a method from its name (or class) and its options, refusing options it does not have.

    Parameters
    ----------
    method
        As for :func:`load_method`, or the class itself.
    backbone, num_classes, rng
        See :class:`~openauc.methods.base.Method`.
    method_args
        Keyword options. ``{"preset": name}`` stands for the options of a preset; others given beside it win.

    Raises
    ------
    ValueError
        For an unknown method, preset or option, naming the accepted ones.

    Examples
    --------
    >>> import numpy as np
    >>> from openauc.models import make_backbone
    >>> backbone, rng = make_backbone("vgg32", width=4), np.random.default_rng(0)
    >>> make_method("openauc", backbone, 6, rng=rng, method_args={"preset": "public_code"}).num_classes
    6
    """
    kind = load_method(method) if isinstance(method, str) else method
    options = dict(method_args or {})
    if "preset" in options:
        options = kind.preset(options.pop("preset")) | options
    accepted = method_options(kind)
    for option in options:
        check_choice(f"an option of {kind.__name__}", option, accepted)
    return kind(backbone, num_classes, rng=rng, **options)
