"""What shell commands do to files, told without running them: checked by running them in bash."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from running import clean_environment

from repotrace.importers.effects import Effects, effects, readings
from repotrace.importers.patches import Unfitting, apply_diff, apply_envelope, apply_multi
from repotrace.importers.programs import command_key, is_test_command
from repotrace.importers.shell import Opaque, simple_commands

FILES = {
    "a.py": "def f(x):\n    return x + 1\n\n\nprint(f(2))\n",
    "b.txt": "one\ntwo\nthree & four\n",
    "sub/c.txt": "no end",
    "empty": "",
}


def reality(folder: Path, script: str) -> tuple[dict[str, bytes], int]:
    """The files after bash ran the script, and its exit code."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=clean_environment(folder),
        capture_output=True,
        check=False,
    )
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not {".pytest_cache", "__pycache__"} & set(path.parts)
    }
    return found, done.returncode


def told(script: str, exit_code: int) -> tuple[dict[str, bytes], Effects]:
    """The files as `effects` has them."""
    files = {f"/r/{name}": text.encode() for name, text in FILES.items()}
    found = effects(script, "/r", files.get, exit_code=exit_code, root="/r")
    merged: dict[str, bytes | None] = {**files, **found.contents}
    return {k.removeprefix("/r/"): v for k, v in merged.items() if v is not None}, found


FOLLOWED = [
    "cat > new.txt <<'EOF'\n$HOME `x` \\n\nEOF",
    "cat <<EOF > new.txt\na\\$b \\`c\\` \\\\ d\nEOF\ncat new.txt",
    "cat >> b.txt <<-EOF\n\tindented\n\tEOF",
    "cat a.py b.txt > both; rm a.py",
    "echo hello > h && echo more >> h; echo -n x > n; echo -e 'a\\tb' > t",
    "printf 'def f():\\n    pass\\n' > f.py",
    "printf '%s\\n' one 'two three' > p; printf '100%%\\n' > q",
    "sed -i 's/x + 1/x - (1)/' a.py",
    "sed -i 's/f(x)/g(x, *y)/; ' a.py",
    "sed -i '2s/t/T/g' b.txt && sed -i '1d' b.txt",
    "sed -i '2,$s|e|E|g' b.txt",
    "sed -i 's/four/[&] \\& \\n/' b.txt",
    "sed -i -e 's/one/1/' -e 's/two/2/' b.txt",
    "sed -i 's/^    return.*$/    return 7/' a.py",
    "rm b.txt sub/c.txt",
    "mv b.txt d.txt && cp d.txt e.txt",
    "touch b.txt new && mkdir -p x/y && echo z > x/y/z",
    "cd sub && echo in > here; cd .. && echo out > there",
    "tee t1 t2 <<'E'\nboth\nE",
    "bash -c 'echo inner > inner'",
    "python3 - <<'EOF'\nfrom pathlib import Path\np = Path('a.py')\ns = p.read_text()\n"
    "assert s.count('x + 1') == 1\np.write_text(s.replace('x + 1', 'x * 2') + '# end\\n')\nEOF",
    "python3 -c \"s = open('b.txt').read(); open('b.txt', 'w').write(s.replace('one', '1'))\"",
    "python3 - <<'EOF'\nwith open('b.txt') as f:\n    text = f.read()\n"
    "with open('b.txt', 'a') as f:\n    f.write(text)\n    f.write('end')\nprint('done')\nEOF",
    "patch -p1 <<'EOF'\n--- a/b.txt\n+++ b/b.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n"
    " three & four\nEOF",
    "git apply <<'EOF'\ndiff --git a/b.txt b/b.txt\n--- a/b.txt\n+++ b/b.txt\n"
    "@@ -1,3 +1,4 @@\n one\n two\n+2.5\n three & four\ndiff --git a/n b/n\n"
    "new file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\nEOF",
    "ls; cat a.py | head -2; grep -n x a.py; find . -name '*.py'; wc -l b.txt 2>/dev/null",
    "for f in *.py; do echo $f; done",
    "cat > x.py <<'EOF'\nimport sys\nsys.exit(3)\nEOF\npython3 -m pytest -q nothing_here",
    'echo \'a # b\' > c1 # a comment\necho "d\\"e" > c2',
    "echo one \\\n  two > joined",
    "cat a.py > copy.py 2>&1",
    "true > b.txt",
]


@pytest.mark.parametrize("script", FOLLOWED, ids=range(len(FOLLOWED)))
def test_what_is_told_is_what_bash_does(script: str, tmp_path: Path) -> None:
    real, code = reality(tmp_path, script)
    found, told_of = told(script, code)
    assert told_of.doubts == []
    assert found == real


NOT_FOLLOWED = [
    *("make", "npm install", "pip install .", "./run.sh", "python3 gen.py", "cargo build"),
    *("rm -rf sub", "rm *.txt", "echo $RANDOM > a.py", "date > a.py", "ls > listing"),
    *("sed -i '/x/d' a.py", "sed -i -E 's/(x)/\\1/' a.py", "sed -i.bak 's/x/y/' a.py"),
    *("for f in *.py; do sed -i s/a/b/ $f; done", "(cd sub && touch x)", "git checkout -- ."),
    *("git reset --hard", "git stash", "find . -name '*.py' -delete", "ls | xargs rm"),
    *("ruff check --fix", "black .", "curl -O http://127.0.0.1/x", "tar xf x.tar", "eval x"),
    *("python3 -c 'import os; os.remove(\"a.py\")'", "cat <<EOF > a.py\n$(date)\nEOF"),
    *("cp -r sub other", "mv sub other", "'unbalanced", "f() { rm a.py; }; f", "cat < b.txt > c"),
    "python3 - <<'EOF'\nfor name in ['a.py']:\n    open(name, 'w').write('')\nEOF",
]


@pytest.mark.parametrize("script", NOT_FOLLOWED)
def test_what_cannot_be_told_is_doubted(script: str) -> None:
    _, told_of = told(script, 0)
    assert told_of.doubts != []
    assert told_of.contents == {}


READING = [
    *("ls -la", "git status", "git diff HEAD~1 | head -50", "python -m pytest -q 2>&1 | tail -5"),
    *("npm test", "go test ./...", "cargo test", "cd sub && pytest -x", "grep -rn x . | wc -l"),
    *("sed -n '1,20p' a.py", "ruff check .", "uv run pytest", "timeout 60 pytest", "tsc --noEmit"),
    *("env A=1 pytest", "head -5 a.py > /dev/null 2>&1", "git add -A && git commit -m x"),
    "find . -type f -exec grep -l x {} ;",
    "while read l; do echo $l; done",
]


@pytest.mark.parametrize("script", READING)
def test_reading_and_testing_leave_no_doubt(script: str) -> None:
    _, told_of = told(script, 0)
    assert told_of.doubts == []
    assert told_of.contents == {}


def test_a_failed_command_makes_its_last_part_doubtful() -> None:
    found, told_of = told("echo 1 > one\npytest", 1)
    assert (found["one"], told_of.doubts) == (b"1\n", [])
    _, told_of = told("pytest && echo 1 > one", 1)
    assert told_of.doubts != []
    # Outside of the project nothing matters.
    assert told("pytest > /elsewhere/log", 1)[1].doubts == []


parts = st.sampled_from(
    [
        *("echo {a} > {f}", "echo {a} >> {f}", "printf '{a}\\n' > {f}", "rm -f {f}"),
        *("cp b.txt {f}", "touch {f}", "sed -i 's/o/{a}/' b.txt", "sed -i 's/e/&{a}/g' a.py"),
        *("mkdir -p sub && mv {f} sub/{f}", "cat {f} b.txt > z.txt", "cat > {f} <<'E'\n{a}\nE\n"),
        *("mkdir -p sub && cd sub", "cd ..", "true", "false", "test -f {f}"),
    ]
)
words = st.sampled_from(["x", "'y z'", "q1", '"w"'])
names = st.sampled_from(["n1.txt", "n2.txt", "a.py", "b.txt"])


@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_scripts_without_doubts_do_what_is_told(data: st.DataObject, tmp_path: Path) -> None:
    script = ""
    for _ in range(data.draw(st.integers(1, 5))):
        part = data.draw(parts).format(a=data.draw(words), f=data.draw(names))
        script += part + (
            "" if part.endswith("\n") else data.draw(st.sampled_from(["; ", "\n", " && "]))
        )
    script += "true"
    folder = Path(subprocess.check_output(["mktemp", "-d", "-p", str(tmp_path)], text=True).strip())
    real, code = reality(folder, script)
    found, told_of = told(script, code)
    if not told_of.doubts and code == 0 and "false" not in script and "test -f" not in script:
        assert found == real, script


@settings(max_examples=300)
@given(script=st.text(alphabet="ab $'\"\\`(){}<>|&;\n#!*[]~=EOF-\x0b\u2028\r", max_size=60))
@example('"unbalanced \\')
def test_any_script_is_taken_apart_or_opaque(script: str) -> None:
    with suppress(Opaque):
        simple_commands(script)
    effects(script, "/r", lambda _path: None)
    readings(script, "/r")
    is_test_command(script)
    command_key(script)


def test_readings_name_paths_and_lines() -> None:
    assert [r.path for r in readings("cat a b/c; head -n 5 d | tail -2", "/r")] == [
        *("/r/a", "/r/b/c", "/r/d"),
    ]
    (one,) = readings("cd x && sed -n '3,9p' y", "/r")
    assert (one.path, one.first_line, one.last_line, one.whole) == ("/r/x/y", 3, 9, False)
    (whole,) = readings("cat /r/a", "/")
    assert whole.whole
    assert readings("cat a > b; grep x a; sed -i s/a/b/ c", "/r") == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("python -m pytest -q", "cd /r && python -m pytest -v 2>&1 | tail -20", True),
        ("pytest tests/a.py", "pytest tests/b.py", False),
        ("make  test", "make test", True),
    ],
)
def test_commands_that_try_the_same_have_one_key(one: str, other: str, same: bool) -> None:
    assert (command_key(one) == command_key(other)) is same


# --- Patches, with git as the judge ---------------------------------------------------------

lines = st.lists(st.sampled_from(["a", "b", "c", "", "  d", "e\t"]), max_size=12)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(old=lines, new=lines, ends=st.tuples(st.booleans(), st.booleans()))
def test_a_diff_of_git_gives_the_new_text(
    old: list[str], new: list[str], ends: tuple[bool, bool], tmp_path: Path
) -> None:
    one, other = ("\n".join(x) + "\n" * end for x, end in zip((old, new), ends, strict=True))
    for name, text in (("a", one), ("b", other)):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["git", "diff", "--no-index", "-U2", "a", "b"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    if one != other:
        diff = done.stdout.decode()
        assert apply_diff(one, diff[diff.index("@@ ") :]) == other
        (change,) = apply_multi(diff.replace("+++ b/b", "+++ b/a"), {"a": one}.get)
        assert change.after == other


def test_an_envelope_is_applied_as_apply_patch_does() -> None:
    method = "    def f(self):\n        return 1\n"
    files = {"a": f"class A:\n{method}\nclass B:\n{method}"}
    patch = (
        "*** Begin Patch\n*** Update File: a\n@@ class B:\n     def f(self):\n-        return 1\n"
        "+        return 2\n*** Add File: n\n+x\n+\n*** Delete File: d\n*** Update File: m\n"
        "*** Move to: k\n@@\n-1\n+2\n*** End of File\n*** End Patch"
    )
    found = apply_envelope(patch, {**files, "m": "1\n1\n", "d": ""}.get)
    assert found[0].after == files["a"][:-9] + "return 2\n"
    assert [(c.path, c.after, c.renamed_from) for c in found[1:]] == [
        ("n", "x\n\n", None),
        ("d", None, None),
        ("m", None, None),
        ("k", "1\n2\n", "m"),
    ]
    for wrong in ("", "*** Begin Patch\n*** End Patch", patch.replace("return 1", "return 9")):
        with pytest.raises(Unfitting):
            apply_envelope(wrong, {**files, "m": "1\n", "d": ""}.get)
