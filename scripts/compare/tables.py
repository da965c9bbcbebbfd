#!/usr/bin/env python3
"""Trains the systems of one table on the built-in shapes, evaluates every run, and prints a Markdown table of means and deviations over
seeds, and for most tables also differences with intervals. Some tables have a second command, which answers another question.

  scripts/compare/tables.py balance           # CLIP on data with a long tail, with and without concept balance
  scripts/compare/tables.py captions          # one or four partial captions per image for CLIP; four for SuperCLIP, DreamLIP, COSMOS, FLAIR
  scripts/compare/tables.py moments           # loss and scores of CLIP with the optimizer's moments in float32 and bfloat16
  scripts/compare/tables.py pyramidclip       # the steps from CLIP to PyramidCLIP
  scripts/compare/tables.py pyramidclip --bad-captions 0 20 40 60
  scripts/compare/tables.py readouts          # CLIP with several read-outs
  scripts/compare/tables.py readouts --wide
  scripts/compare/tables.py residual          # loss and scores of CLIP and SPARC with both types of the residual stream
  scripts/compare/tables.py heads             # only heads on stored vectors, and LiT
  scripts/compare/tables.py nested            # embeddings cut to several widths, and models trained at each of them
  scripts/compare/tables.py sparc             # CLIP, FILIP and SPARC for several numbers of objects per image
  scripts/compare/tables.py stair             # STAIR trained in three stages, STAIR trained in one stage, and CLIP
  scripts/compare/tables.py stair --web vit
  scripts/compare/tables.py stair --web resnet
  scripts/compare/tables.py stair --web resnet --unmasked --seeds 0
  scripts/compare/tables.py stair --web resnet --hybrids --seeds 0
  scripts/compare/tables.py taught            # a small model with and without a teacher
  scripts/compare/tables.py TABLE --help      # what is measured, and the options

Complete runs are not trained again, and stopped runs resume from their last checkpoint. Needs only the standard library and the built
programs (scripts/setup.sh).
"""
import argparse
import json
import pathlib
import statistics
import time

import paired_test
from objectives import (DIFFERENCES, ROOT, Cell, add_arguments, against, mean_cell, means_of, metrics_of, overridden, print_differences,
                        print_side_by_side, print_table, rows_of, run, run_cells, variant)

CONFIGS = ROOT / "configs"
ZERO_SHOT = {"zero_shot.top1": "zero-shot top-1"}
RETRIEVAL = {"retrieval.image_to_text_recall@1": "image-to-text R@1", "retrieval.text_to_image_recall@1": "text-to-image R@1"}


def shapes(name):
    return CONFIGS / f"shapes/{name}.yaml"


def show(cells, args, columns):
    run_cells(cells, args)
    print_table(rows_of(cells), args, list(columns), list(columns.values()))


def chosen(names, args):
    """Returns one row for each configuration, or for those that --only names."""
    cells = {f"shapes_{name}": Cell(f"shapes_{name}", shapes(name)) for name in names}
    unknown = [name for name in args.only if name not in cells]
    if unknown:
        raise SystemExit(f"tables.py: --only {' '.join(unknown)}: this table has {', '.join(cells)}")
    return [cell for name, cell in cells.items() if not args.only or name in args.only]


CAPTIONS = {
    **ZERO_SHOT,
    **RETRIEVAL,
    "segmentation.image_miou": "segmentation, image mIoU",
    "zero_shot_2.top1": "zero-shot, conditioned",
    "retrieval_2.image_to_text_recall@1": "image-to-text, conditioned",
    "retrieval_2.text_to_image_recall@1": "text-to-image, conditioned",
    "segmentation_2.image_miou": "segmentation, conditioned",
    "segmentation_3.image_miou": "segmentation, attention",
}


def captions(args):
    """Compares systems on partial captions: CLIP with one caption per image; and with four captions the multi-positive contrast, the same
    plus SuperCLIP, DreamLIP, COSMOS, and FLAIR. Measures zero-shot, retrieval and segmentation with global embeddings and plain patches,
    and for FLAIR also with its text-conditioned pool."""
    args.set = [f"training.steps={args.steps}", *args.set]
    args.suite = CONFIGS / "suites/shapes.yaml"
    cells = chosen(("one_caption", "multi_positive", "captions_superclip", "dreamlip", "cosmos", "flair"), args)
    for cell in cells:
        if cell.name == "shapes_flair":
            cell.suite = CONFIGS / "suites/shapes_flair.yaml"
    show(cells, args, CAPTIONS)


READOUTS = {
    **ZERO_SHOT,
    **RETRIEVAL,
    "hard_negatives.accuracy": "hard negatives, seen pairs",
    "hard_negatives_2.accuracy": "hard negatives, unseen pairs",
    "linear_probe.top1": "linear probe top-1",
}
WIDE = ("model.image.projection.embed_dim=512", "model.text.projection.embed_dim=512")
RIVALS = {"cls": WIDE, "gap": WIDE, "attentional_pool": ("model.image.readout.output_dim=512", "model.text.readout.output_dim=512")}


def readouts(args):
    """Compares read-outs of CLIP: zero-shot, retrieval, linear probe, and hard negatives on images with seen and unseen pairs of color
    and shape. SPARO's embeddings have 512 numbers, those of its rivals 128. --wide gives the rivals 512 numbers too, and measures
    SPARO's lead over them."""
    args.set = [f"training.steps={args.steps}", *args.set]
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    if not args.wide:
        return show(chosen((*RIVALS, "sparo"), args), args, READOUTS)
    sparo = Cell("SPARO, 32 slots of 16", shapes("sparo"))
    rivals = [Cell(f"`{name}`, 512 wide", shapes(name), set=settings, folder=f"wide_{name}") for name, settings in RIVALS.items()]
    show([*rivals, sparo], args, READOUTS)
    print_differences([(f"SPARO - {rival.name}", against(sparo, rival, args)) for rival in rivals], list(READOUTS), list(READOUTS.values()))


PYRAMID = ("pyramid_clip", "pyramid_soft", "pyramid_peer", "pyramid_cross", "pyramidclip")
PYRAMID_COLUMNS = {**ZERO_SHOT, "zero_shot.top3": "top-3", **READOUTS}


def pyramidclip(args):
    """Compares the steps from CLIP to PyramidCLIP: zero-shot, retrieval, linear probe, and hard negatives on images with seen and unseen
    pairs of color and shape. --bad-captions measures whether PyramidCLIP's lead over CLIP grows with the share of bad captions. In that
    case, every training image has one caption. A third of the bad captions leave out objects, a third name objects that are not in the
    image, and a third belong to another image. The test captions are correct."""
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    if not args.bad_captions:
        cells = chosen(PYRAMID, args)
        show(cells, args, PYRAMID_COLUMNS)
        return print_differences([(f"{cell.name} - {cells[0].name}", against(cell, cells[0], args)) for cell in cells[1:]],
                                 list(PYRAMID_COLUMNS), list(PYRAMID_COLUMNS.values()))
    args.set = [f"training.steps={args.steps}", "data.train.captions=1", *args.set]
    pairs = {}
    for percent in args.bad_captions:
        share = percent / 300
        bad = f"data.train.bad_captions={{less: {share}, more: {share}, other: {share}}}"
        pairs[percent] = [Cell(f"{name}, {percent}% bad", shapes(config), set=(bad,), folder=f"bad{percent}/{config}")
                          for name, config in (("CLIP", "pyramid_clip"), ("PyramidCLIP", args.pyramid))]
    show([cell for pair in pairs.values() for cell in pair], args, PYRAMID_COLUMNS)
    leads = {percent: against(pyramid, clip, args) for percent, (clip, pyramid) in pairs.items()}
    rows = [(f"PyramidCLIP - CLIP, {percent}% bad", terms) for percent, terms in leads.items()]
    first, last = args.bad_captions[0], args.bad_captions[-1]
    if first != last:
        rows.append((f"lead at {last}% - lead at {first}%",
                     lambda column: leads[last](column) + [(-factor, *run) for factor, *run in leads[first](column)]))
    print_differences(rows, list(PYRAMID_COLUMNS), list(PYRAMID_COLUMNS.values()))


LONG_CONTEXT = 96  # the configurations' 40 tokens would cut off more than half of the captions of four objects
SPARC = {
    "segmentation.image_miou": "image mIoU",
    "segmentation.dataset_miou": "dataset mIoU",
    **RETRIEVAL,
    "hard_negatives.accuracy": "hard negatives",
    **ZERO_SHOT,
}


def sparc(args):
    """Compares CLIP, FILIP and SPARC on images of two, three and four objects: segmentation, retrieval, hard negatives, and the differences
    of SPARC from the others. The question is whether SPARC's lead in local detail grows with the number of objects. Objects have the same
    sizes in all images, so that only their number differs. With a single object, segmentation has only one class. More than four objects
    need smaller --sizes."""
    args.set = [f"training.steps={args.steps}", f"model.preprocessing.image_size={args.image_size}", f"tokenizer.context_length={LONG_CONTEXT}",
                *args.set]
    args.suite = CONFIGS / "suites/shapes.yaml"
    cells = {}
    for count in args.objects:
        label = f"{count} object{'s' if count > 1 else ''}"
        data = (f"objects=[{count}, {count}]", f"object_sizes={args.sizes}", f"image_size={args.image_size}")
        for name in args.systems:
            cells[name, count] = Cell(f"{name.upper()}, {label}", shapes(name), folder=f"objects{count}/{name}",
                                      set=tuple(f"data.{split}.{setting}" for split in ("train", "validation") for setting in data),
                                      evaluate_set=tuple(f"source.{setting}" for setting in data))
    show(list(cells.values()), args, SPARC)
    if {"sparc"} < set(args.systems):
        leads = [(f"SPARC - {cell.name}", against(cells["sparc", count], cell, args))
                 for (name, count), cell in sorted(cells.items()) if name != "sparc"]
        print_differences(leads, list(SPARC), list(SPARC.values()))


STAIR_NAMES = {"stair": "STAIR, three stages", "stair_single": "STAIR, one stage", "stair_clip": "CLIP"}
STAIR_COUNTS = {"retrieval.active_tokens_per_image": "words per image", "retrieval.active_tokens_per_text": "words per text"}
STAIR_COMPARED = {  # the columns in which STAIR is compared with CLIP
    "zero_shot.top1": "zero-shot, colors",
    "zero_shot_2.top1": "zero-shot, shapes",
    **RETRIEVAL,
    "tokens.caption_precision@5": "share of the 5 strongest words that a caption has",
    "interpretability.top1": "color is the strongest word",
    "interpretability.top3": "color is among the 3 strongest",
    "interpretability_2.top1": "shape is the strongest word",
    "interpretability_2.top3": "shape is among the 3 strongest",
}
STAIR = {
    **STAIR_COMPARED,
    "retrieval_2.image_to_text_recall@1": "image-to-text R@1, no text tower",
    "retrieval_2.text_to_image_recall@1": "text-to-image R@1, no text tower",
    **STAIR_COUNTS,
}
WEB_DATA = {"style": "web", "image_size": 96, "objects": [1, 2], "object_sizes": [0.4, 0.6]}
# SOURCES has the keys of the data in the suites shapes_stair and shapes_tokens. WEB_CLASSES has settings of these suites that say which
# words stand for a color or a shape.
SOURCES = ("source", "tasks.3.source", "tasks.4.source")
WEB_CLASSES = tuple(f"tasks.{task}.classes={CONFIGS}/classes/shapes_web_{name}.txt" for task, name in ((2, "colors"), (3, "shapes")))


def resnet(width):
    return (f"model.image.encoder={{name: modified_resnet, width: {width}, layers: [1, 1, 1, 1]}}",)


# For each image tower: the side of its images in pixels, the steps of STAIR's stages, and the settings for STAIR and for CLIP. CLIP's tower
# is larger, so that its step takes at least as many FLOPs as a step of STAIR, whose towers also have heads as wide as the vocabulary.
WEB_TOWERS = {
    "vit": (96, (400, 150, 250), (), ("model.image.encoder.layers=6",)),
    "resnet": (32, (2000, 750, 1250), resnet(16), resnet(22)),
}
WEB_VOCABULARY = len((CONFIGS / "vocabularies/shapes-web-wordpiece/vocab.txt").read_text().splitlines())
# CLIP with one head of STAIR; the other head projects to vectors of the same width.
HYBRIDS = {tower: ("objective={name: clip}", f"model.{other}.readout={{name: gap}}",
                   f"model.{other}.projection={{name: linear, embed_dim: {WEB_VOCABULARY}}}")
           for tower, other in (("image", "text"), ("text", "image"))}


def as_settings(key, values):
    return tuple(f"{key}.{name}={value}" for name, value in values.items())


def stair_cell(name, args, label=None, more=()):
    title = label or STAIR_NAMES[name]
    # In CLIP's embeddings and the hybrids', dimensions are not words, so they have no retrieval without a text encoder.
    words = name != "stair_clip" and "objective={name: clip}" not in more
    suite = CONFIGS / "suites" / f"shapes_{'stair' if words else 'tokens'}.yaml"
    if not args.web:
        return Cell(title, shapes(name), suite)
    pixels, stages, of_stair, of_clip = WEB_TOWERS[args.web]
    config = variant(args.out / f"configs/shapes_{name}.yaml", [shapes(name), CONFIGS / "parts/shapes_web.yaml"])
    settings = (*as_settings("data.train", WEB_DATA), *as_settings("data.validation", WEB_DATA), f"model.preprocessing.image_size={pixels}")
    if name == "stair":
        settings += tuple(f"stages.{i}.training.steps={steps}" for i, steps in enumerate(stages))
    else:
        settings += (f"training.steps={sum(stages)}",)
    settings += (*(of_clip if name == "stair_clip" else of_stair), *more)
    of_suite = sum((as_settings(source, WEB_DATA) for source in SOURCES), WEB_CLASSES)
    return Cell(title, config, suite, settings, of_suite, folder=label and label.replace(" ", "_"))


def stair(args):
    """Compares STAIR in three stages, STAIR in one stage, and CLIP: zero-shot, retrieval with and without the text tower, whether the color
    and shape of the largest object are an image's strongest words, and how many words an image has. --web measures whether STAIR is better
    than a dense CLIP when captions use thousands of words, and whether an image's strongest words, including shapes, are readable. Captions
    then have the style `web` (2,600 words), and images have one or two large objects. With the ViT, no model learns shapes. With a small
    ResNet, which reduces images of 32 pixels to one position, CLIP and STAIR in one stage learn them. --hybrids shows what each of STAIR's
    two heads does to CLIP, --unmasked what the first stage's mask of words does to STAIR."""
    if (args.hybrids or args.unmasked) and not args.web:
        raise SystemExit("tables.py stair: --hybrids and --unmasked need --web")
    args.out = (args.out or pathlib.Path(f"runs/stair_web_{args.web}" if args.web else "runs/stair")).resolve()
    cells = [stair_cell(name, args) for name in STAIR_NAMES]
    clip = cells[-1]
    if args.hybrids:
        cells += [stair_cell("stair_single", args, f"CLIP with the {tower} head of STAIR", more) for tower, more in HYBRIDS.items()]
    if args.unmasked:
        cells.append(stair_cell("stair", args, "STAIR, three stages, no mask", ("stages.0.objective.text_token_mask=false",)))
    run_cells(cells, args)
    print_side_by_side(cells, clip, args, STAIR, STAIR_COMPARED, STAIR_COUNTS)


def losses_of(cell, args):
    """Returns {step: the loss of the run with each seed}."""
    rows = [[json.loads(line) for line in (folder.parent / "metrics.jsonl").read_text().splitlines()] for folder in cell.evaluations(args)]
    curves = [{row["step"]: row["loss"] for row in run if "loss" in row} for run in rows]
    return {step: [curve[step] for curve in curves] for step in curves[0]}


def compare_pairs(pairs, kinds, args):
    """Compares the two cells of each named pair: scores, their differences, and the loss in the course of training."""
    columns = {**ZERO_SHOT, **RETRIEVAL}
    show([cell for pair in pairs.values() for cell in pair], args, columns)
    print_differences([(f"{name}, {kinds[1]} - {kinds[0]}", against(*reversed(pair), args)) for name, pair in pairs.items()],
                      list(columns), list(columns.values()))
    print("\n| loss at step | " + " | ".join(f"{name}, {kinds[0]} | {name}, {kinds[1]} | difference" for name in pairs) + " |")
    print("| --- |" + " --- |" * 3 * len(pairs))
    curves = [[losses_of(cell, args) for cell in pair] for pair in pairs.values()]
    for step in curves[0][0]:
        cells = []
        for single, half in curves:
            differences = [b - a for a, b in zip(single[step], half[step])]
            cells += [f"{statistics.mean(single[step]):.4f}", f"{statistics.mean(half[step]):.4f}",
                      f"{statistics.mean(differences):+.4f} ± {statistics.stdev(differences) if len(differences) > 1 else 0:.4f}"]
        print(f"| {step} | " + " | ".join(cells) + " |")


TYPES = ("float32", "bfloat16")


def residual(args):
    """Compares training.residual: float32 with bfloat16, both with training.precision: bf16, for CLIP and SPARC: the loss in the course of
    training and the scores of the last model. Both runs of a seed start from the same weights and see the same batches."""
    args.set = [f"training.steps={args.steps}", "training.precision=bf16", f"log.every_steps={args.steps // 10}", *args.set]
    args.suite = CONFIGS / "suites/shapes.yaml"
    compare_pairs({name: [Cell(f"{name}, {kind}", shapes(name), set=(f"training.residual={kind}",), folder=f"{name}_{kind}") for kind in TYPES]
                   for name in ("clip", "sparc")}, TYPES, args)


def moments(args):
    """Compares training.moments: float32 with bfloat16 for CLIP, trained with AdamW and with Muon: the loss in the course of training and the
    scores of the last model. Both runs of a seed start from the same weights and see the same batches."""
    args.set = [f"training.steps={args.steps}", f"log.every_steps={args.steps // 10}", *args.set]
    args.suite = CONFIGS / "suites/shapes.yaml"
    optimizers = {"adamw": (), "muon": ("optimizer={name: muon, lr: 1.0e-3, weight_decay: 0.1}",)}
    compare_pairs({name: [Cell(f"{name}, {kind}", shapes("clip"), set=(*settings, f"training.moments={kind}"), folder=f"{name}_{kind}")
                          for kind in TYPES] for name, settings in optimizers.items() if name in args.optimizers}, TYPES, args)


COLORS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
SHAPES = ("circle", "square", "triangle", "star", "cross", "diamond", "ring", "heart", "hexagon", "moon")
BALANCE = {"zero_shot.top1": "zero-shot colors", "zero_shot_2.top1": "zero-shot shapes", **RETRIEVAL}


def balance(args):
    """Compares CLIP on all samples with CLIP with concept balance, on training data in which colors and shapes have a long tail. Both
    make the same number of steps. In the test data, all colors and shapes are equally frequent. The entries are the names of the colors and
    shapes, and their pairs."""
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    data = {"skew": args.skew, "objects": "[1,2]", "size": 20000, "partial_captions": 0.5}
    args.set = [f"training.steps={args.steps}", *as_settings("data.train", data), *args.set]
    entries, counts = args.out / "entries.txt", args.out / "counts.tsv"
    entries.write_text("\n".join([*COLORS, *SHAPES, *(f"{color} {shape}" for color in COLORS for shape in SHAPES)]) + "\n")
    run([ROOT / "build/bin/tessera-data", "concepts", "--source", "shapes", *(f"--set={key}={value}" for key, value in data.items()),
                 "--entries", entries, "--out", counts, "--thresholds", args.threshold], args.out / "concepts.txt")
    print((args.out / "concepts.txt").read_text())
    args.suite = CONFIGS / "suites/shapes_balance.yaml"
    balanced = (f"data.loader.balance={{counts: {counts}, threshold: {args.threshold}}}",)
    cells = [Cell("all samples", shapes("clip"), folder="all"), Cell("concept balance", shapes("clip"), set=balanced, folder="balanced")]
    show(cells, args, BALANCE)
    print_differences([("balanced - all", against(*reversed(cells), args))], list(BALANCE), list(BALANCE.values()))


def trained_once(name, config, args):
    """Trains a configuration with the seed 0. Returns the run's folder."""
    once = argparse.Namespace(**{**vars(args), "seeds": [0]})
    cell = Cell(name, config, folder=f"source_{name}")
    run_cells([cell], once)
    return cell.evaluations(once)[0].parent


def taught(args):
    """Compares a small model that learns from a larger one (distill) with the same model without a teacher, and shows the teacher's scores.
    The teacher is trained once, and all seeds of the small model learn from it."""
    args.set = [f"training.steps={args.steps}", *args.set]
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    teacher = trained_once("teacher", shapes("clip"), args)
    alone = Cell("small model alone", shapes("distill"), set=("objective={name: clip}",), folder="alone")
    distilled = Cell("small model, distilled", shapes("distill"), set=(f"objective.teacher={teacher}",), folder="distilled")
    only = Cell("small model, soft targets only", shapes("distill"), set=(f"objective.teacher={teacher}", "objective.clip_weight=0"),
                folder="soft_targets")
    show([alone, distilled, only], args, READOUTS)
    print_differences([(f"{cell.name} - {alone.name}", against(cell, alone, args)) for cell in (distilled, only)], list(READOUTS),
                      list(READOUTS.values()))
    scores = metrics_of(json.loads((teacher / "evaluation/results.json").read_text()))
    print("\nThe teacher: " + ", ".join(f"{heading} {100 * scores[column]:.1f}" for column, heading in READOUTS.items()) + ".")


def nested(args):
    """Compares embeddings that are cut to each of several widths (matryoshka) with those of models trained at that width alone."""
    args.set = [f"training.steps={args.steps}", *args.set]
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    columns = {**ZERO_SHOT, **RETRIEVAL}
    whole = args.widths[-1]
    cut = Cell("nested", shapes("matryoshka"), set=(f"objective.matryoshka.widths=[{', '.join(map(str, args.widths))}]",), folder="nested")
    own = {width: Cell(f"trained at {width}", shapes("clip"), folder=f"width_{width}",
                       set=tuple(f"model.{tower}.projection.embed_dim={width}" for tower in ("image", "text"))) for width in args.widths}
    cells = [cut, *own.values()]
    run_cells(cells, args)

    def at_width(column, width):
        task, metric = column.split(".")
        return column if width == whole else f"{task}.width_{width}_{metric}"

    print(f"{means_of(args, ())} {DIFFERENCES}\n")
    print("| width | " + " | ".join(f"{heading}: nested | trained at it | difference" for heading in columns.values()) + " |")
    print("| ---: |" + " --- |" * (3 * len(columns)))
    for width, cell in own.items():
        words = []
        for column in columns:
            terms = [(1, cut.evaluations(args), at_width(column, width)), (-1, cell.evaluations(args), column)]
            words += [mean_cell(cut.runs, at_width(column, width)), mean_cell(cell.runs, column), paired_test.cell(terms)]
        print(f"| {width} | " + " | ".join(words) + " |")
    print("\nMinutes of training: " + ", ".join(f"{cell.name} {statistics.mean(minutes for _, minutes in cell.runs):.1f}" for cell in cells) + ".")


def heads(args):
    """Compares training only heads on stored vectors of both frozen encoders with LiT, which trains the text tower on stored features of the
    frozen image encoder, and prints what writing the features took. The encoders come from one trained CLIP."""
    args.set = [f"training.steps={args.steps}", *args.set]
    args.suite = CONFIGS / "suites/shapes_readouts.yaml"
    source = trained_once("encoders", shapes("clip"), args)
    cells, written = [], []
    for name in ("lit", "heads"):
        features = args.out.resolve() / f"features_{name}"
        settings = (f"start.weights={source}", f"data.features.folder={features}")
        if not (features / "features.json").exists():
            start = time.monotonic()
            run(overridden([ROOT / "build/bin/trainer", "--config", shapes(name), "--write-features"], settings), args.out / f"features_{name}.out")
            (args.out / f"features_{name}.seconds").write_text(f"{time.monotonic() - start:.0f}")
        written.append(f"{name} {(args.out / f'features_{name}.seconds').read_text()} s")
        cells.append(Cell({"lit": "LiT", "heads": "only heads"}[name], shapes(name), set=settings, folder=name))
    show(cells, args, READOUTS)
    print_differences([("only heads - LiT", against(cells[1], cells[0], args))], list(READOUTS), list(READOUTS.values()))
    print(f"\nWriting the features took: {', '.join(written)}.")


def option(name, **settings):
    return name, settings


def steps(default, help="training steps of every run"):
    return option("--steps", type=int, default=default, help=help)


ONLY = option("--only", nargs="+", default=[], metavar="NAME", help="of the configurations in the first command's table, such as shapes_cls")
TABLES = {  # function: (the folder of its runs, its options)
    balance: ("runs/balance", [
        option("--skew", type=int, default=2, help="steepness of the long tail (data.train.skew)"),
        option("--threshold", type=int, default=500, help="data.loader.balance.threshold"), steps(400)]),
    captions: ("runs/captions", [ONLY, steps(400)]),
    pyramidclip: ("runs/pyramidclip", [
        ONLY, option("--bad-captions", nargs="+", type=int, default=[], metavar="PERCENT",
                     help="compare CLIP and PyramidCLIP at these shares, say 0 20 40 60"),
        option("--pyramid", default="pyramidclip", choices=PYRAMID[1:], help="the step that is compared with --bad-captions"),
        steps(300, "of training with --bad-captions, for every run")]),
    readouts: ("runs/readouts", [ONLY, option("--wide", action="store_true", help="compare SPARO with rivals of 512 numbers"), steps(1000)]),
    moments: ("runs/moments", [option("--optimizers", nargs="+", default=["adamw", "muon"], choices=["adamw", "muon"]), steps(400)]),
    residual: ("runs/residual", [steps(400)]),
    heads: ("runs/heads", [steps(400)]),
    nested: ("runs/nested", [option("--widths", nargs="+", type=int, default=[8, 16, 32, 64, 128], help="the last one is the whole width"),
                             steps(400)]),
    taught: ("runs/taught", [steps(400)]),
    sparc: ("runs/sparc_objects", [
        option("--systems", nargs="+", default=["clip", "filip", "sparc"], choices=["clip", "filip", "sparc"], help="default: all"),
        option("--objects", nargs="+", type=int, default=[2, 3, 4], metavar="COUNT"),
        option("--sizes", nargs=2, type=float, default=[0.26, 0.58], metavar="SHARE",
               help="diameters of the smallest and the largest objects (default: the usual ones; 0.18 0.26 suit up to six objects)"),
        option("--image-size", type=int, default=64), steps(400)]),
    stair: (None, [
        option("--web", choices=WEB_TOWERS, help="captions of thousands of words, larger objects, and this image tower"),
        option("--hybrids", action="store_true", help="with --web: also CLIP with STAIR's image head or with its text head"),
        option("--unmasked", action="store_true", help="with --web: also STAIR in three stages, the first one without its mask of words")]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = parser.add_subparsers(metavar="TABLE", required=True)
    for run, (out, options) in TABLES.items():
        table = tables.add_parser(run.__name__, description=run.__doc__)
        for name, settings in options:
            table.add_argument(name, **settings)
        add_arguments(table, out and pathlib.Path(out))
        table.set_defaults(jobs=2, run=run)
    args = parser.parse_args()
    args.set = ["training.threads=1", *args.set]
    args.run(args)


if __name__ == "__main__":
    main()
