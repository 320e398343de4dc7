"""The functions of a generated test that run the command where and as it ran before."""

from __future__ import annotations

import os
from pathlib import Path

from repotrace.generator import embedded
from repotrace.generator.expectation import is_hang
from repotrace.generator.needs import Needs
from repotrace.generator.parts import Parts

NESTED = "REPOTRACE_REGRESSION"
"""Set for the command of a generated test: what runs in there collects no generated tests."""

_SKIP_NOT_STARTED = ["except OSError as error:", '    pytest.skip(f"cannot run: {error}")']


def functions_to_run(needs: Needs, parts: Parts) -> None:
    """Define `run()`, which returns a `subprocess.CompletedProcess[str]`, and all it uses."""
    parts.use("subprocess")
    ways = {"plain": _plain, "patient": _patient, "terminal": _terminal}
    ways[needs.way](needs, parts)
    if needs.expectation.masked:
        _masked(needs, parts)
    _environment(needs, parts)
    if needs.secrets:
        _restored(parts)
    if needs.recorded:
        _moved(parts)
    if needs.places:
        _places(needs, parts)
    if needs.uses_venv:
        _virtual_environment(needs, parts)
    if "python" in needs.places:
        _base_python(needs, parts)
    if needs.where is not None:
        needs.where.define(parts)


def add_text(parts: Parts) -> None:
    """Define `text`, which decodes without loss."""
    parts.add(
        [
            "def text(data: bytes) -> str:",
            '    return data.decode("utf-8", "surrogateescape")',
        ]
    )


# --- ways to run


def _opening(needs: Needs, parts: Parts) -> list[str]:
    """The first lines of `run`: whatever makes a run impossible."""
    lines = [
        "def run() -> subprocess.CompletedProcess[str]:",
        '    """Run the command as it was recorded."""',
    ]
    if needs.run.stdin_kind == "cut":
        parts.use("pytest")
        lines.append('    pytest.skip("its standard input was too long to be recorded")')
    if needs.where is not None:
        parts.use("pytest")
        lines += [
            "    folder = working_folder()",
            "    if not folder.is_dir():",
            '        pytest.skip(f"there is no folder {folder}")',
        ]
    return lines


def _arguments(needs: Needs) -> list[str]:
    """The arguments that every way of running has."""
    arguments = [_command(needs)]
    if needs.where is not None:
        arguments.append("cwd=folder")
    return [*arguments, "env=environment()"]


def _command(needs: Needs) -> str:
    part = _put_right(needs, "part")
    return "COMMAND" if part == "part" else f"[{part} for part in COMMAND]"


def _put_right(needs: Needs, text: str) -> str:
    """The expression `text` with secrets restored and folders moved, where any need it."""
    if needs.secrets:
        text = f"restored({text})"
    return f"moved({text})" if needs.recorded else text


def _call(indent: int, start: str, arguments: list[str]) -> list[str]:
    """A call, one argument on each line."""
    space = " " * indent
    return [f"{space}{start}(", *(f"{space}    {each}," for each in arguments), f"{space})"]


def _guarded(needs: Needs, lines: list[str], parts: Parts, indent: int = 4) -> list[str]:
    """Lines that start the command; if they cannot, the test is skipped."""
    space = " " * indent
    if needs.not_started:
        return [space + line for line in lines]
    parts.use("pytest")
    return [
        f"{space}try:",
        *(f"{space}    {line}" for line in lines),
        *(space + line for line in _SKIP_NOT_STARTED),
    ]


def _plain(needs: Needs, parts: Parts) -> None:
    arguments = _arguments(needs)
    if needs.stdin is None:
        arguments.append("stdin=subprocess.DEVNULL")
    elif isinstance(needs.stdin, str) and needs.decoded:
        arguments.append(f"input={'restored(STDIN)' if needs.secrets else 'STDIN'}.encode()")
    else:
        secret = needs.secrets and isinstance(needs.stdin, str)
        arguments.append(f"input={'restored(STDIN)' if secret else 'STDIN'}")
    if needs.run.merge:
        arguments += ["stdout=subprocess.PIPE", "stderr=subprocess.STDOUT"]
    else:
        arguments.append("capture_output=True")
    if not needs.decoded:
        arguments += ['encoding="utf-8"', 'errors="surrogateescape"']
    arguments += [f"timeout={needs.timeout}", "check=False"]
    lines = _opening(needs, parts)
    if not needs.decoded:
        parts.add([*lines, *_guarded(needs, _call(0, "return subprocess.run", arguments), parts)])
        return
    add_text(parts)
    err = 'text(result.stderr or b"")' if needs.run.merge else "text(result.stderr)"
    parts.add(
        [
            *lines,
            *_guarded(needs, _call(0, "result = subprocess.run", arguments), parts),
            *_call(
                4,
                "return subprocess.CompletedProcess",
                ["COMMAND", "result.returncode", "text(result.stdout)", err],
            ),
        ]
    )


def _patient(needs: Needs, parts: Parts) -> None:
    """Files instead of pipes: what the command leaves behind cannot hold them open."""
    parts.use("contextlib", "os", "signal", "tempfile")
    parts.use_from("typing", "Any")
    add_text(parts)
    fed = needs.stdin is not None
    arguments = [
        *_arguments(needs),
        "stdin=given" if fed else "stdin=subprocess.DEVNULL",
        "stdout=out",
        "stderr=subprocess.STDOUT" if needs.run.merge else "stderr=err",
        "start_new_session=True",
    ]
    names = ["out", "err", *(["given"] if fed else [])]
    out, err = _contents(needs, parts)
    parts.add(
        [
            *_opening(needs, parts),
            "    with contextlib.ExitStack() as files:",
            *(f"        {name} = files.enter_context(tempfile.TemporaryFile())" for name in names),
            *(_stdin_file(needs) if fed else []),
            *_guarded(needs, _call(0, "process = subprocess.Popen", arguments), parts, indent=8),
            "        code: Any = None",
            "        with contextlib.suppress(subprocess.TimeoutExpired):",
            f"            code = process.wait({_timeout(needs)})",
            "        with contextlib.suppress(OSError):",
            "            os.killpg(process.pid, signal.SIGKILL)",
            "        process.wait()",
            "        out.seek(0)",
            "        err.seek(0)",
            *_call(8, "return subprocess.CompletedProcess", ["COMMAND", "code", out, err]),
        ]
    )


def _stdin_file(needs: Needs) -> list[str]:
    return [f"        given.write({_stdin_bytes(needs)})", "        given.seek(0)"]


def _stdin_bytes(needs: Needs) -> str:
    if not isinstance(needs.stdin, str):
        return "STDIN"
    return "restored(STDIN).encode()" if needs.secrets else "STDIN.encode()"


def _timeout(needs: Needs) -> str:
    return "TIMEOUT" if is_hang(needs.run) else str(needs.timeout)


def _contents(needs: Needs, parts: Parts) -> tuple[str, str]:
    """Expressions for what is in the files of both streams."""
    found = []
    for stream, name in zip(needs.expectation.streams, ("out", "err"), strict=True):
        if stream.lines is None:
            found.append(f"text({name}.read())")
            continue
        first, last = stream.lines
        found.append(f"text(shortened({name}, {first}, {last}, whole={stream.digest}))")
        parts.copy(embedded.shortened, "collections", "hashlib", "itertools")
        parts.use_from("typing", "BinaryIO")
    return found[0], found[1]


def _terminal(needs: Needs, parts: Parts) -> None:
    """A terminal of the test's own, as large as the recorded variables say."""
    parts.use("contextlib", "os", "pty", "select", "signal", "time")
    parts.use_from("typing", "Any")
    add_text(parts)
    fed = needs.stdin is not None
    arguments = [
        *_arguments(needs),
        "stdin=subprocess.PIPE" if fed else "stdin=theirs",
        "stdout=theirs",
        "stderr=theirs",
        "start_new_session=True",
    ]
    feed = []
    if fed:
        parts.use("threading")
        given = f"args=({_stdin_bytes(needs)},)"
        feed = [f"    threading.Thread(target=process.communicate, {given}).start()"]
    parts.add(
        [
            *_opening(needs, parts),
            "    ours, theirs = pty.openpty()",
            *_size(needs, parts),
            *_guarded(needs, _call(0, "process = subprocess.Popen", arguments), parts),
            "    os.close(theirs)",
            *feed,
            '    output = b""',
            f"    limit = time.monotonic() + {_timeout(needs)}",
            "    with contextlib.suppress(OSError):  # the end, as Linux tells it",
            "        while time.monotonic() < limit:",
            "            if select.select([ours], [], [], 0.05)[0]:",
            "                piece = os.read(ours, 65536)",
            "                output += piece",
            "                if not piece:",
            "                    break",
            "            elif process.poll() is not None:",
            "                break",
            "    code: Any = None",
            "    with contextlib.suppress(subprocess.TimeoutExpired):",
            "        code = process.wait(max(0.1, limit - time.monotonic()))",
            "    with contextlib.suppress(OSError):",
            "        os.killpg(process.pid, signal.SIGKILL)",
            "    process.wait()",
            "    os.close(ours)",
            '    return subprocess.CompletedProcess(COMMAND, code, text(output), "")',
        ]
    )


def _size(needs: Needs, parts: Parts) -> list[str]:
    """A terminal without a size makes programs guess."""
    parts.use("fcntl", "struct", "termios")
    sizes = []
    for name, default in (("LINES", "24"), ("COLUMNS", "80")):
        value = needs.environment.get(name, default)
        usable = value.isascii() and value.isdigit() and 0 < int(value) < 65536
        sizes.append(str(int(value)) if usable else default)
    return [
        f'    size = struct.pack("HHHH", {", ".join(sizes)}, 0, 0)',
        "    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)",
    ]


# --- surroundings


def _environment(needs: Needs, parts: Parts) -> None:
    parts.use("os")
    lines = [
        "def environment() -> dict[str, str]:",
        '    """The variables that are set here, those that matter as they were."""',
    ]
    if not needs.environment:
        lines.append("    values = dict(os.environ)")
    else:
        value = _put_right(needs, "value")
        pinned = "ENVIRONMENT" if value == "value" else "pinned"
        if pinned == "pinned":
            lines.append(f"    pinned = {{name: {value} for name, value in ENVIRONMENT.items()}}")
        lines.append(f"    values = {{**os.environ, **{pinned}}}")
    if needs.unset:
        lines += ["    for name in UNSET:", "        values.pop(name, None)"]
    if needs.uses_venv:
        lines += [
            "    venv = virtual_environment()",
            "    if venv is not None:",
            '        path = values.get("PATH", os.defpath)',
            '        values["PATH"] = str(venv / "bin") + os.pathsep + path',
        ]
        if "VIRTUAL_ENV" in needs.run.env:
            lines.append('        values["VIRTUAL_ENV"] = str(venv)')
    lines.append(f'    values["{NESTED}"] = "1"')
    parts.add([*lines, "    return values"])


def _restored(parts: Parts) -> None:
    parts.use("os", "pytest")
    parts.add(
        [
            "def restored(text: str) -> str:",
            '    """`text` with what is redacted in it, which the variables must have."""',
            "    for mark, name in SECRETS.items():",
            "        if mark in text:",
            "            if name not in os.environ:",
            '                pytest.skip(f"needs {name}")',
            "            text = text.replace(mark, os.environ[name])",
            "    return text",
        ]
    )


def _moved(parts: Parts) -> None:
    _copy_replaced(parts)
    parts.add(
        [
            "def moved(text: str) -> str:",
            '    """`text` with the folders of the record where they are now."""',
            "    now = places()",
            "    return replaced(text, [(old, now[name]) for name, old in RECORDED.items()])",
        ]
    )


def _copy_replaced(parts: Parts) -> None:
    parts.copy(embedded.replaced, "os", "re")
    parts.use_from("urllib.parse", "quote")
    parts.use_from("collections.abc", "Iterable")


def _masked(needs: Needs, parts: Parts) -> None:
    expectation = needs.expectation
    parts.use("re")
    lines = [
        "def masked(text: str) -> str:",
        '    """`text` without what differs from run to run and from place to place."""',
    ]
    if expectation.terminal:
        lines += _substitutions("TERMINAL")
    if expectation.own:
        lines += _substitutions("OWN_MASKS")
    if expectation.places:
        parts.use("os")
        _copy_replaced(parts)
        lines += [
            "    folders = []",
            "    for name, path in places().items():",
            "        for form in (path, os.path.realpath(path)):",
            '            folders.append((form, f"<{name}>"))',
            "    text = replaced(text, folders)",
        ]
    if expectation.masks:
        lines += _substitutions("MASKS")
    if not all(map(_is_text, (needs.run.stdout.data, needs.run.stderr.data))):
        lines += [
            "    # What stood apart may form a character now.",
            '    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")',
        ]
    parts.add([*lines, "    return text"])


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _substitutions(name: str) -> list[str]:
    return [
        f"    for pattern, replacement in {name}:",
        "        text = re.sub(pattern, replacement, text)",
    ]


def _places(needs: Needs, parts: Parts) -> None:
    parts.use("os")
    lines = [
        "def places() -> dict[str, str]:",
        '    """The folders whose paths differ from place to place."""',
    ]
    if "venv" in needs.places:
        parts.use("pytest")
        lines += [
            "    venv = virtual_environment()",
            "    if venv is None:",
            '        pytest.skip("there is no virtual environment")',
        ]
    lines.append("    return {")
    for name in needs.places:
        lines.append(f'        "{name}": {_place(needs, name, parts)},')
    parts.add([*lines, "    }"])


def _place(needs: Needs, name: str, parts: Parts) -> str:
    """The expression for the path of one folder."""
    match name:
        case "cwd":
            return "str(working_folder())"
        case "repository":
            below = needs.where.below if needs.where else None
            depth = len(Path(below).parts) if below else 0
            folder = "working_folder()"
            return f"str({folder}.parents[{depth - 1}])" if depth else f"str({folder})"
        case "venv":
            return "str(venv)"
        case "python":
            return "base_python()"
        case "tmp":
            parts.use("tempfile")
            return "tempfile.gettempdir()"
        case _:
            return 'os.path.expanduser("~")'


def _virtual_environment(needs: Needs, parts: Parts) -> None:
    parts.use("os", "shutil", "sys")
    parts.use_from("pathlib", "Path")
    recorded, in_project = _recorded_venv(needs, parts)
    last = "recorded, ours" if in_project else "ours, recorded"
    parts.add(
        [
            "def virtual_environment() -> Path | None:",
            '    """What stands for the recorded one; the active one if there is any."""',
            "    ours = Path(sys.prefix)",
            f"    recorded = {recorded}",
            f"    candidates = [{last}]",
            '    python = shutil.which("python")',
            "    if python is not None:",
            "        candidates.insert(0, Path(python).absolute().parent.parent)",
            '    if os.environ.get("VIRTUAL_ENV"):',
            '        candidates.insert(0, Path(os.environ["VIRTUAL_ENV"]))',
            "    for path in candidates:",
            '        if (path / "pyvenv.cfg").is_file():',
            "            return path",
            "    return None",
        ]
    )


def _recorded_venv(needs: Needs, parts: Parts) -> tuple[str, bool]:
    """The expression for the recorded one, and whether it is part of the project."""
    venv, where = needs.run.places.venv or "", needs.where
    root = needs.run.places.repository or needs.run.places.cwd
    real = os.path.realpath(venv)
    if where is not None and root and Path(real).is_relative_to(root):
        parts.constants["RECORDED_VENV"] = os.path.relpath(real, needs.run.places.cwd or root)
        return "(working_folder() / RECORDED_VENV).resolve()", True
    parts.constants["RECORDED_VENV"] = venv
    return "Path(RECORDED_VENV)", False


def _base_python(needs: Needs, parts: Parts) -> None:
    parts.use("shutil", "sys")
    parts.use_from("pathlib", "Path")
    lines = [
        "def base_python() -> str:",
        '    """The prefix of the interpreter that is below all virtual environments."""',
    ]
    if needs.uses_venv:
        lines += [
            "    venv = virtual_environment()",
            "    if venv is not None:",
            '        for line in (venv / "pyvenv.cfg").read_text("utf-8").splitlines():',
            '            key, _, value = line.partition("=")',
            '            if key.strip() == "home":',
            "                return str(Path(value.strip()).resolve().parent)",
        ]
    parts.add(
        [
            *lines,
            '    python = shutil.which("python") or shutil.which("python3") or sys.executable',
            "    prefix = Path(python).resolve().parent.parent",
            '    return str(prefix) if (prefix / "lib").is_dir() else sys.base_prefix',
        ]
    )
