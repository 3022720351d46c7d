"""Optional packages: an error that says what to install."""

import importlib.util

_NAMES = {  # of packages whose module has another name
    "tensorflow": "TensorFlow",
    "tensorflow_text": "tensorflow-text",
    "tensorflow_serving": "tensorflow-serving-api",
    "grpc": "grpcio",
    "prometheus_client": "prometheus-client",
}


def require(*modules: str, extra: str, purpose: str) -> None:
    """Checks that modules can be imported, without importing them.

    Args:
        modules: Names of top-level modules.
        extra: The extra of keras_attn that installs them.
        purpose: What needs them, as the subject of the sentence.

    Raises:
        ImportError: with the packages that are missing and the command that installs them.
    """
    missing = [_NAMES.get(module, module) for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        them = "it" if len(missing) == 1 else "them"
        raise ImportError(
            f"Expected {' and '.join(missing)} to be installed: {purpose} needs {them}. "
            f'Run: pip install "keras_attn[{extra}]"'
        )
