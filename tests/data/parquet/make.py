#!/usr/bin/env python3
"""Writes the files next to it: small tables as pyarrow, Hugging Face's datasets and img2dataset write them.

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
    """Writes structs of bytes and path with features in the metadata, and the same data with save_to_disk, alone and as splits."""
    data = datasets.Dataset.from_list([{"image": {"bytes": picture(i), "path": f"{i}.png"}, "text": f"picture {i}", "label": i % 3}
                                       for i in range(12)], features=features())
    data.to_parquet(FOLDER / "features.parquet", batch_size=5)
    for name in ("saved", "splits"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    data.save_to_disk(str(FOLDER / "saved"), num_shards=2)
    datasets.DatasetDict({"train": data.select(range(3)), "test": data.select(range(3, 5))}).save_to_disk(str(FOLDER / "splits"))


def write_names():
    """Writes names of files next to the table instead of bytes; one file is missing, and one name is null."""
    (FOLDER / "pictures").mkdir(exist_ok=True)
    for i in range(2):
        (FOLDER / "pictures" / f"{i}.png").write_bytes(picture(i))
    parquet.write_table(pyarrow.table({"image": ["pictures/0.png", "pictures/1.png", "pictures/missing.png", None],
                                       "caption": ["one", "two", "three", "four"]}), FOLDER / "names.parquet")


def write_bomb():
    """Writes a dictionary with one text of 64 KiB that a million rows repeat."""
    rows = 1_000_000
    texts = pyarrow.DictionaryArray.from_arrays(numpy.zeros(rows, numpy.int32), ["x" * 65536])
    table = pyarrow.table({"image": texts, "caption": pyarrow.DictionaryArray.from_arrays(numpy.zeros(rows, numpy.int32), ["a caption"])})
    parquet.write_table(table, FOLDER / "bomb.parquet", store_schema=False)


def write_side_table():
    """Writes the table that img2dataset puts next to a tar shard, with keys in another order and one failed download."""
    order = [5, 1, 3, 0, 2, 4]
    parquet.write_table(pyarrow.table({"key": [f"{i:09d}" for i in order], "status": ["success" if i < 5 else "failed_to_download" for i in order],
                                       "similarity": [i / 10 for i in order], "uid": [uid(i) for i in order]}),
                        FOLDER / "side.parquet")


def write_ids():
    """Writes ids as DataComp publishes its subsets, the same ids unsorted and as a table of integers, and an invalid file."""
    kind = numpy.dtype("u8,u8")
    halves = [(int(uid(i)[:16], 16), int(uid(i)[16:], 16)) for i in range(0, ROWS, 5)]
    numpy.save(FOLDER / "ids.npy", numpy.array(halves, kind))
    numpy.save(FOLDER / "ids_unsorted.npy", numpy.array(halves[::-1], kind))
    numpy.save(FOLDER / "ids_table.npy", numpy.array(halves, numpy.uint64))
    numpy.save(FOLDER / "ids_wrong.npy", numpy.arange(5))


def main():
    write_plain()
    write_hugging_face()
    write_names()
    write_bomb()
    write_side_table()
    write_ids()


if __name__ == "__main__":
    main()
