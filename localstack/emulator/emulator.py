"""Keel's own template and programs on an AWS emulator on this machine. What differs from AWS: localstack/emulator/README.md.

    emulator.py up      starts it, deploys two stages, prints what it has now and the variables for the contract test
    emulator.py env     prints them again
    emulator.py down    ends it; nothing is kept
"""

import hashlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile

import boto3
from botocore.config import Config

from transform import emulated

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "target" / "emulator"
# Those of `make build`, or others in the same form.
PACKAGES = ROOT / os.environ.get("KEEL_PACKAGES", "target/lambda")
PORT = int(os.environ.get("KEEL_EMULATOR_PORT", "4566"))
# A person's own emulator, which is neither started nor ended here; or ours.
THEIRS = os.environ.get("AWS_ENDPOINT_URL")
URL = THEIRS or f"http://127.0.0.1:{PORT}"
REGION = "eu-central-1"
BUCKET = "keel-packages"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ENDPOINT_URL": URL,
}
# The keys of the contract test: their scopes, and the names that it knows them by.
KEYS = {
    "KEEL_API_KEY": ("keel_dev.e2e_not-a-secret", ["client", "owner", "admin"]),
    "KEEL_OTHER_API_KEY": ("keel_other.e2e_not-a-secret", ["client", "owner", "admin"]),
    "KEEL_CLIENT_API_KEY": ("keel_dev.client_not-a-secret", ["client"]),
}


def client(service):
    slow = Config(retries={"max_attempts": 1}, read_timeout=120)
    return boto3.client(
        service, endpoint_url=URL, region_name=REGION, config=slow,
        aws_access_key_id="test", aws_secret_access_key="test",
    )


def pid():
    try:
        return int((HERE / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None


def ready():
    try:
        with urllib.request.urlopen(f"{URL}/_ministack/health", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def start():
    """The emulator, on the loopback interface alone, checking the functions' roles as IAM does."""
    HERE.mkdir(parents=True, exist_ok=True)
    if THEIRS:
        return
    if ready():
        sys.exit(f"something answers on port {PORT} already: make down, or KEEL_EMULATOR_PORT")
    environment = {
        **os.environ, **ENVIRONMENT,
        "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(PORT), "MINISTACK_REGION": REGION,
        "MINISTACK_HOST": "127.0.0.1", "AUTH": "true", "LAMBDA_EXECUTOR": "local",
    }
    with open(HERE / "log", "wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "ministack"], env=environment, cwd=HERE,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )
    (HERE / "pid").write_text(str(child.pid))
    for _ in range(300):
        if ready():
            return
        if child.poll() is not None:
            sys.exit(f"the emulator ended: {HERE / 'log'}")
        time.sleep(0.2)
    sys.exit(f"the emulator does not answer: {HERE / 'log'}")


def upload():
    """The packages, each under a name that changes with it."""
    s3 = client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    uris = {}
    for package in sorted(PACKAGES.glob("keel-*/bootstrap.zip")):
        content = package.read_bytes()
        if package.parent.name == "keel-stream":
            content = unstreamed(content)
        key = f"{package.parent.name}-{hashlib.sha256(content).hexdigest()[:12]}.zip"
        s3.put_object(Bucket=BUCKET, Key=key, Body=content)
        uris[f"../target/lambda/{package.parent.name}/bootstrap.zip"] = f"s3://{BUCKET}/{key}"
    return uris


def unstreamed(package):
    """The stream's package with a bootstrap of ours in front of its own (unstream.py)."""
    with zipfile.ZipFile(io.BytesIO(package)) as theirs:
        program = theirs.read("bootstrap")
    ours = io.BytesIO()
    with zipfile.ZipFile(ours, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("bootstrap", pathlib.Path(__file__).with_name("unstream.py").read_bytes())
        package.writestr("streaming-bootstrap", program)
    return ours.getvalue()


def deploy(stage, uris, worker):
    """A stack. Its outputs."""
    template = emulated((ROOT / "infra" / "template.yaml").read_text(), uris, worker)
    architecture = (PACKAGES / "architecture").read_text().strip()
    parameters = {"Stage": stage, "Architecture": architecture, "GatewayLogs": "create"}
    cloudformation = client("cloudformation")
    name = f"keel-{stage}"
    # Beyond 51,200 bytes a template comes from a bucket, here as there.
    client("s3").put_object(Bucket=BUCKET, Key=f"{name}.json", Body=json.dumps(template).encode())
    cloudformation.create_stack(
        StackName=name, TemplateURL=f"{URL}/{BUCKET}/{name}.json",
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
    )
    for _ in range(300):
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if stack["StackStatus"] == "CREATE_COMPLETE":
            break
        if not stack["StackStatus"].endswith("_IN_PROGRESS") or "ROLLBACK" in stack["StackStatus"]:
            events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
            failed = [e for e in events if e["ResourceStatus"].endswith("_FAILED")]
            why = [f"{e['LogicalResourceId']}: {e.get('ResourceStatusReason')}" for e in failed]
            sys.exit("\n".join([f"{name}: {stack['StackStatus']} {stack.get('StackStatusReason', '')}", *why]))
        time.sleep(0.2)
    else:
        sys.exit(f"{name}: {stack['StackStatus']}")
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    for key, scopes in KEYS.values():
        put_key(outputs["StateTable"], key, scopes)
    # https://<api>.execute-api.<region>.<suffix>/<stage> on AWS; here the same gateway by path.
    api = outputs["BaseUrl"].split("//")[1].split(".")[0]
    return {**outputs, "BaseUrl": f"{URL}/restapis/{api}/{stage}/_user_request_"}


def put_key(table, key, scopes):
    """As docs/operations.md says."""
    name, secret = key.removeprefix("keel_").rsplit("_", 1)
    tenant, key_id = name.rsplit(".", 1)
    row = {"hash": hashlib.sha256(secret.encode()).hexdigest(), "scopes": scopes, "createdMs": int(time.time() * 1000)}
    client("dynamodb").put_item(TableName=table, Item={
        "pk": {"S": tenant}, "sk": {"S": f"key#{key_id}"}, "v": {"N": "1"}, "row": {"S": json.dumps(row)},
    })


def listed():
    """What the emulator itself says that it has."""
    functions = client("lambda").get_paginator("list_functions").paginate().search("Functions[]")
    for function in sorted(functions, key=lambda function: function["FunctionName"]):
        yield f"function {function['FunctionName']} {function['CodeSize']:,} bytes, {function['MemorySize']} MB"
    for mapping in client("lambda").list_event_source_mappings()["EventSourceMappings"]:
        source, function = (mapping[arn].rsplit(":", 1)[1] for arn in ("EventSourceArn", "FunctionArn"))
        yield f"event source {source} -> {function}"
    for url in sorted(client("sqs").list_queues().get("QueueUrls", [])):
        yield f"queue {url.rsplit('/', 1)[1]}"
    for table in sorted(client("dynamodb").list_tables()["TableNames"]):
        yield f"table {table}"


def up():
    begun = time.monotonic()
    start()
    try:
        uris = upload()
        stack, idle = deploy("e2e", uris, worker=True), deploy("idle", uris, worker=False)
        variables = {
            "KEEL_BASE_URL": stack["BaseUrl"],
            "KEEL_NO_WORKER_URL": idle["BaseUrl"],
            "KEEL_AWS_URL": URL,
            "KEEL_HINTS_URL": stack["HintsUrl"],
            "KEEL_DEAD_HINTS_URL": stack["DeadHintsUrl"],
            **{name: key for name, (key, _) in KEYS.items()},
        }
    except BaseException:
        down()
        raise
    (HERE / "env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    print(*listed(), sep="\n", file=sys.stderr)
    print((HERE / "env").read_text(), end="")
    print(f"up in {time.monotonic() - begun:.0f} s", file=sys.stderr)


def down():
    running = pid()
    if running is None:
        return
    (HERE / "pid").unlink()
    try:
        os.killpg(running, signal.SIGTERM)
        for _ in range(50):
            os.killpg(running, 0)
            time.sleep(0.1)
        os.killpg(running, signal.SIGKILL)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    verbs = {"up": up, "down": down, "env": lambda: print((HERE / "env").read_text(), end="")}
    verbs[sys.argv[1]]()
