"""Checks for packages that only some users need; needs neither Keras nor a backend itself."""

from importlib.util import find_spec


def require(extra: str, *modules: str, purpose: str = "") -> None:
    """Refuses to go on if a module is not installed, and says how to install it.

    Args:
        extra: The extra of `keras_attn` that installs the modules.
        modules: Names of modules. They are not imported.
        purpose: What needs them.

    Raises:
        ModuleNotFoundError: If one is not installed.
    """
    if missing := [name for name in modules if not is_installed(name)]:
        names, needed = " and ".join(missing), f" for {purpose}" if purpose else ""
        raise ModuleNotFoundError(
            f'Expected {names} to be installed{needed}: pip install "keras_attn[{extra}]".', name=missing[0]
        )


def is_installed(module: str) -> bool:
    """Returns whether there is a module of this name; does not import it."""
    try:
        return find_spec(module) is not None
    except (ValueError, ModuleNotFoundError):  # the module, or the package that it is in, is blocked or missing
        return False
