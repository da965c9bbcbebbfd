#!/usr/bin/env python3
"""Runs scripts/check/includes.py on small trees. A correct tree must pass, and each kind of fault must be reported."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/check"))
import includes  # noqa: E402

PAGE = """
Data flows one way.
```bash
echo src
```
```
src       base → batch, ops →
          data → tools
src/data  source → image → loading
```
```
include/tessera            batch
include/tessera/base       text
include/tessera/data       source
                           registry
include/tessera/data/image decode
```
| folder | at most, lines | content |
| --- | --- | --- |
| `base`, `batch.h` | 2 | text |
| `ops` | 1,003 | operators |
| `data` | 5 | samples |
"""
TREE = {
    "include/tessera/base/text.h": "",
    "include/tessera/batch.h": "#include <tessera/base/text.h>\n",
    "src/ops/kernel_call.h": "",
    "src/ops/sum.cpp": '#include "src/ops/kernel_call.h"\n#include <vector>\n#include <ATen/ATen.h>\n',
    "include/tessera/data/source.h": "#include <tessera/batch.h>\n",
    "include/tessera/data/image/decode.h": "#include <tessera/data/source.h>\n",
    "src/data/loading/loader.cpp": "#include <tessera/data/image/decode.h>\n#include <tessera/data/registry.h>\n",
    "include/tessera/data/registry.h": "#include <tessera/data/source.h>\n",
    "tools/embed.cpp": "#include <tessera/data/source.h>\n",
    "tests/ops/sum_test.cpp": '#include "src/ops/kernel_call.h"\n#include <tessera/data/source.h>\n',
    "tests/fuzz/target.cpp": '#include "src/ops/kernel_call.h"\n',
}


def check(changes=(), page=PAGE):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**TREE, **dict(changes)}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return includes.check(root, page)


class CheckIncludes(unittest.TestCase):
    def expect(self, changes, *faults, page=PAGE):
        self.assertEqual(check(changes, page)[1], list(faults))

    def test_a_correct_tree_passes_and_is_counted(self):
        changes = {"src/data/loading/loader.cpp": "#include <tessera/data/image/decode.h>\n"}
        summary, faults = check(changes)
        self.assertEqual(faults, [])
        # The dependencies in src are batch → base, data → batch and tools → data; those in src/data are image → source, loading → image and
        # registry → source.
        self.assertEqual(summary, ["src: 5 parts, 3 dependencies", "src/data: 4 parts, 3 dependencies", "include/tessera: 5 public headers",
                                   "src and include/tessera: 8 lines"])

    def test_a_part_that_includes_from_its_right_is_named(self):
        self.expect({"src/data/loading/loader.cpp": "", "src/base/text.cpp": "\n#include <tessera/data/source.h>\n"},
                    "src/base/text.cpp:2: tessera/data/source.h: base comes before data in src")
        self.expect({"src/data/loading/loader.cpp": "",
                     "include/tessera/data/source.h": '#include "tessera/data/image/decode.h"\n'},
                    "include/tessera/data/source.h:1: tessera/data/image/decode.h: source comes before image in src/data")

    def test_files_that_the_page_does_not_name_come_last(self):
        self.expect({}, "src/data/loading/loader.cpp:2: tessera/data/registry.h: loading comes before registry in src/data")

    def test_public_headers_are_those_that_the_page_lists(self):
        quiet = {"src/data/loading/loader.cpp": ""}
        self.expect({**quiet, "include/tessera/ops/sum.h": ""}, "include/tessera/ops/sum.h: a public header that the page does not list")
        self.expect(quiet, "include/tessera/base/log.h does not exist, but the page lists it", page=PAGE.replace("base       text", "base       text log"))
        self.expect({**quiet, "include/tessera/data/source.h": '#include "src/ops/kernel_call.h"\n'},
                    "include/tessera/data/source.h:1: src/ops/kernel_call.h: a public header includes only public headers")

    def test_there_are_at_most_80_public_headers(self):
        names = [f"h{number}" for number in range(76)]
        many = {f"include/tessera/base/{name}.h": "" for name in names}
        page = PAGE.replace("base       text", "base       text " + " ".join(names))
        self.expect({"src/data/loading/loader.cpp": "", **many}, "there are 81 public headers, more than 80", page=page)

    def test_a_folder_with_more_lines_than_the_table_allows_is_named(self):
        quiet = {"src/data/loading/loader.cpp": ""}
        self.expect({**quiet, "src/base/text.cpp": "\n\n", "include/tessera/base/text.h": "\n"},
                    "base has 3 lines, more than the 2 of the page's table: remove what the new code replaces, or raise the limit and say why")
        self.expect(quiet, "the page's table has no limit for the lines of ops", page=PAGE.replace("| `ops` | 1,003 |", "| `ops` | |"))

    def test_the_page_must_name_exactly_the_existing_folders(self):
        quiet = {"src/data/loading/loader.cpp": ""}
        self.expect({**quiet, "src/models/vit.cpp": ""}, "models is missing from the page's order of src")
        self.expect(quiet, "src has no optim, which the page names", page=PAGE.replace("tools", "optim → tools"))
        self.expect(quiet, "the page states no order: expected a code block with a line that begins with src", page="Nothing.")


if __name__ == "__main__":
    unittest.main()
