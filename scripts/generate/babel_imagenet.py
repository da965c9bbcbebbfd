#!/usr/bin/env python3
"""Writes a suite for Babel-ImageNet (Geigle et al. 2023): zero-shot classification of ImageNet with class names in many languages.

  scripts/generate/babel_imagenet.py babel_imagenet.json nllb_dist13b_prompts.json --data wds_imagenet1k/test/{0..6}.tar --out babel.yaml
  evaluate --checkpoint MODEL --suite babel.yaml

The first file, {LANGUAGE: [[labels], [names]]}, and the second, {LANGUAGE: [templates]}, are those of github.com/gregor-ge/Babel-ImageNet.
In each language, only the images of the classes with a name count. --data are the shards of ImageNet's validation images, with labels from 0
to 999 in the member `cls`. --languages DE FR chooses some languages.
"""

import argparse
import json
import pathlib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", type=pathlib.Path)
    parser.add_argument("prompts", type=pathlib.Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--languages", nargs="+")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    names, prompts = json.loads(arguments.names.read_text()), json.loads(arguments.prompts.read_text())
    sets = []
    for language in arguments.languages or sorted(names):
        labels, classes = names[language]
        task = {"name": "zero_shot", "classes": classes, "labels": labels, "templates": prompts[language], "topk": [1],
                "source": {"name": "webdataset", "path": str(pathlib.Path(arguments.data).absolute())}}
        sets.append({"name": language, "key": f"babel/{language}", "metric": "acc1", "samples": 50 * len(labels), "task": task})
    arguments.out.write_text(json.dumps({"sets": sets}, ensure_ascii=False, indent=1))  # JSON is YAML
    print(f"{arguments.out}: {len(sets)} languages")


if __name__ == "__main__":
    main()
