"""Protocol buffers that both interfaces send: the model's name and version, and the states of its versions."""

from tensorflow_serving.apis import get_model_status_pb2, model_pb2


def model_spec(name: str, version: int) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=name)
    spec.version.value = version
    return spec


def status_response(states: list[tuple[int, str, str]]) -> get_model_status_pb2.GetModelStatusResponse:
    """The answer of `GetModelStatus`, from `Versions.states`."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version, state, error in states:
        status = response.model_version_status.add(version=version)
        status.state = get_model_status_pb2.ModelVersionStatus.State.Value(state)
        status.status.error_code = 2 if error else 0  # UNKNOWN, OK
        status.status.error_message = error
    return response
