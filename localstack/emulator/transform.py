"""The template as the emulator takes it: the same, but for what is listed in localstack/emulator/README.md.

Each difference must find what it changes, so that one which is no longer needed, or no longer fits, is an error.
"""

import yaml


class Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms."""


def short_form(loader, suffix, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if suffix in ("Ref", "Condition"):
        return {suffix: value}
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {f"Fn::{suffix}": value}


Loader.add_multi_constructor("!", short_form)

METRIC_MATH = ["ErrorsAlarm", "ThrottlesAlarm"]
ANY = "x-amazon-apigateway-any-method"
STREAMED = (
    "2021-11-15/functions/${Stream.Arn}/response-streaming-invocations",
    "2015-03-31/functions/${Stream.Arn}/invocations",
)
METHODS = ["get", "post", "put", "patch", "delete", "head", "options"]


def emulated(text, uris, worker):
    """The template with its packages at `uris`; without `worker`, nobody answers its runs."""
    template = yaml.load(text, Loader)
    resources = template["Resources"]
    functions = [r for r in resources.values() if r["Type"] == "AWS::Serverless::Function"]
    # `sam deploy` does this on AWS.
    for function in functions:
        function["Properties"]["CodeUri"] = uris[function["Properties"]["CodeUri"]]
    paths = resources["Api"]["Properties"]["DefinitionBody"]["paths"]
    stream = paths["/v1/sessions/{id}/events/stream"][ANY]["x-amazon-apigateway-integration"]
    assert stream.pop("responseTransferMode") == "STREAM"
    stream["uri"] = {"Fn::Sub": stream["uri"]["Fn::Sub"].replace(*STREAMED)}
    assert STREAMED[1] in stream["uri"]["Fn::Sub"]
    for methods in paths.values():
        any_method = methods.pop(ANY)
        methods.update({method: any_method for method in METHODS})
    scaling = resources["Worker"]["Properties"]["Events"]["Hints"]["Properties"]["ScalingConfig"]
    assert scaling == {"MaximumConcurrency": {"Ref": "WorkerConcurrency"}}
    scaling["MaximumConcurrency"] = template["Parameters"]["WorkerConcurrency"]["Default"]
    for alarm in METRIC_MATH:
        assert "Metrics" in resources[alarm]["Properties"], alarm
        del resources[alarm]
    if not worker:
        hints = resources["Worker"]["Properties"]["Events"]["Hints"]["Properties"]
        assert "Enabled" not in hints
        hints["Enabled"] = False
    return template
