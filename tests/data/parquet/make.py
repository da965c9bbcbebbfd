#!/usr/bin/env python3
"""Writes the files in this folder: small tables in the formats of pyarrow, Hugging Face's datasets and img2dataset.

Needs the Python packages pyarrow, datasets, numpy and pillow.

  tests/data/parquet/make.py

Row i has the key i with 7 digits, a PNG of 6 x (5 + i % 3) random pixels, the caption "picture i", the texts "again i" and "and again i",
the label i % 3, width 100 + i, similarity i / 100 (null where i % 10 is 9), language en or de (i % 2), and the uid i * 2^100 + i as 32
hexadecimal digits.
"""
import io
import pathlib
import shutil
import sys

try:
    import datasets
    import numpy
    import pyarrow
    import pyarrow.parquet as parquet
    from PIL import Image
except ImportError as error:
    sys.exit(f"make.py: {sys.executable} has no {error.name}: it needs pyarrow, datasets, numpy and pillow")

FOLDER = pathlib.Path(__file__).resolve().parent
ROWS = 40


def picture(i):
    pixels = numpy.random.default_rng(i).integers(0, 256, (6, 5 + i % 3, 3), dtype=numpy.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def uid(i):
    return f"{i << 100 | i:032x}"


def rows(begin, end):
    return [{"key": f"{i:07d}", "caption": f"picture {i}", "texts": [f"again {i}", f"and again {i}"],
             "meta": {"source": {"name": "web" if i % 4 else "book"}, "boxes": [{"box": [0, 1, 2, 3 + i % 2], "phrase": f"thing {i}"}]},
             "label": i % 3, "width": 100 + i, "similarity": None if i % 10 == 9 else i / 100, "language": "de" if i % 2 else "en",
             "uid": uid(i), "embedding": [0.5, float(i)], "jpg": picture(i)} for i in range(begin, end)]


def write_plain():
    """Writes two files with image bytes in row groups of 8 rows, and one in which the third row group is damaged."""
    for number, (begin, end) in enumerate(((0, 24), (24, ROWS))):
        parquet.write_table(pyarrow.Table.from_pylist(rows(begin, end)), FOLDER / f"plain-{number}.parquet", row_group_size=8,
                            compression="snappy")
    path = FOLDER / "damaged.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows(0, ROWS)), path, row_group_size=8, compression="snappy", use_dictionary=False)
    group = parquet.ParquetFile(path).metadata.row_group(2)
    content = bytearray(path.read_bytes())
    for column in range(group.num_columns):
        begin = group.column(column).data_page_offset
        content[begin:begin + 24] = b"\xff" * 24
    path.write_bytes(content)


def features():
    return datasets.Features({"image": datasets.Image(), "text": datasets.Value("string"),
                              "label": datasets.ClassLabel(names=["cat", "dog", "bird"])})


def write_hugging_face():
    """Writes a Parquet file of image structs (bytes and path) with datasets' features in its metadata, and saves the same data with
    save_to_disk, once as a Dataset and once as a DatasetDict with two splits."""
    data = datasets.Dataset.from_list([{"image": {"bytes": picture(i), "path": f"{i}.png"}, "text": f"picture {i}", "label": i % 3}
                                       for i in range(12)], features=features())
    data.to_parquet(FOLDER / "features.parquet", batch_size=5)
    for name in ("saved", "splits"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    data.save_to_disk(str(FOLDER / "saved"), num_shards=2)
    datasets.DatasetDict({"train": data.select(range(3)), "test": data.select(range(3, 5))}).save_to_disk(str(FOLDER / "splits"))


def write_names():
    """Writes a table that names image files in the folder `pictures` next to it. One file is missing, and one name is null."""
    (FOLDER / "pictures").mkdir(exist_ok=True)
    for i in range(2):
        (FOLDER / "pictures" / f"{i}.png").write_bytes(picture(i))
    parquet.write_table(pyarrow.table({"image": ["pictures/0.png", "pictures/1.png", "pictures/missing.png", None],
                                       "caption": ["one", "two", "three", "four"]}), FOLDER / "names.parquet")


def write_rows():
    """Writes tables with several rows per image: one of image structs, of which the last two have no bytes, one with bytes
    and keys, and one of image structs without names and with keys; its captions have line breaks."""
    images = [("a.png", 0), ("b.png", 1), ("a.png", 2), ("./b.png", 1), ("b.png", 1), (None, 1), ("a.png", 0), ("pictures/0.png", None),
              ("pictures/../pictures/0.png", None)]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    pairs = pyarrow.array([{"bytes": None if number is None else picture(number), "path": name} for name, number in images], kind)
    parquet.write_table(pyarrow.table({"image": pairs, "caption": [str(i) for i in range(len(images))]}), FOLDER / "rows.parquet",
                        row_group_size=4)
    parquet.write_table(pyarrow.table({"__key__": ["x", "y", "x", "x"], "jpg": [picture(i) for i in (0, 0, 1, 0)],
                                       "txt": ["0", "1", "2", "3"]}), FOLDER / "row_keys.parquet")
    keyed = [("x", 0), ("y", 1), ("x", 0), ("x", 1)]
    pairs = pyarrow.array([{"bytes": picture(number), "path": None} for _, number in keyed], kind)
    parquet.write_table(pyarrow.table({"key": [key for key, _ in keyed], "image": pairs, "caption": [f"{i}\nline" for i in range(4)]}),
                        FOLDER / "row_keys_of_pairs.parquet")


def write_webdataset_columns():
    """Writes the columns that datasets' WebDataset loader makes of KEY.png, KEY.txt and KEY.json."""
    data = datasets.Dataset.from_list([{"png": {"bytes": picture(i), "path": f"{i}.png"}, "txt": f"picture {i}" if i else None,
                                        "json": {"caption": "from json" if i < 2 else f"picture {i}", "width": 5 + i % 3},
                                        "cls": i % 3, "__key__": f"shard/{i}", "__url__": "shard.tar"} for i in range(3)],
                                      features=datasets.Features({"png": datasets.Image(), "txt": datasets.Value("string"),
                                                                  "json": {"caption": datasets.Value("string"),
                                                                           "width": datasets.Value("int64")},
                                                                  "cls": datasets.Value("int64"), "__key__": datasets.Value("string"),
                                                                  "__url__": datasets.Value("string")}))
    data.to_parquet(FOLDER / "webdataset.parquet")


def write_bomb():
    """Writes a dictionary-encoded column in which a million rows repeat one text of 64 KiB."""
    rows = 1_000_000
    texts = pyarrow.DictionaryArray.from_arrays(numpy.zeros(rows, numpy.int32), ["x" * 65536])
    table = pyarrow.table({"image": texts, "caption": pyarrow.DictionaryArray.from_arrays(numpy.zeros(rows, numpy.int32), ["a caption"])})
    parquet.write_table(table, FOLDER / "bomb.parquet", store_schema=False)


def write_side_table():
    """Writes a table as img2dataset puts it next to a tar shard. Its keys are not in the shard's order, and one download failed."""
    order = [5, 1, 3, 0, 2, 4]
    parquet.write_table(pyarrow.table({"key": [f"{i:09d}" for i in order], "status": ["success" if i < 5 else "failed_to_download" for i in order],
                                       "similarity": [i / 10 for i in order], "uid": [uid(i) for i in order]}),
                        FOLDER / "side.parquet")


def write_ids():
    """Writes lists of ids: one as DataComp publishes its subsets, the same ids unsorted, the same ids as a table of integers, and an
    invalid file."""
    kind = numpy.dtype("u8,u8")
    halves = [(int(uid(i)[:16], 16), int(uid(i)[16:], 16)) for i in range(0, ROWS, 5)]
    numpy.save(FOLDER / "ids.npy", numpy.array(halves, kind))
    numpy.save(FOLDER / "ids_unsorted.npy", numpy.array(halves[::-1], kind))
    numpy.save(FOLDER / "ids_table.npy", numpy.array(halves, numpy.uint64))
    numpy.save(FOLDER / "ids_wrong.npy", numpy.arange(5))


def write_winogavil():
    """Writes two files of instances of WinoGAViL, in row groups of 2 rows. The last candidate of the last instance has no image."""
    for number, sizes in enumerate(([5, 3, 4], [2])):
        instances = []
        for i, size in enumerate(sizes):
            names = [f"name {k}" for k in range(size)]
            images = [{"bytes": picture(10 * number + i + k), "path": f"{k}.png"} for k in range(size)]
            instances.append({"cue": f"cue {number}{i}", "candidates": names, "candidate_images": images, "associations": names[1:3]})
        if number == 1:
            instances[-1]["candidate_images"][-1]["bytes"] = None
        parquet.write_table(pyarrow.Table.from_pylist(instances), FOLDER / f"winogavil-{number}.parquet", row_group_size=2)


def main():
    write_plain()
    write_hugging_face()
    write_names()
    write_rows()
    write_webdataset_columns()
    write_bomb()
    write_side_table()
    write_ids()
    write_winogavil()


if __name__ == "__main__":
    main()
