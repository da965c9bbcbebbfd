#!/usr/bin/env python3
"""Writes the files in this folder: images in the formats that users have, and the results of Pillow and torchvision for them.

Needs the Python packages pillow, numpy, torchvision and safetensors.

  tests/data/images/generate.py
"""
import io
import pathlib
import struct
import sys
import zlib

try:
    import numpy
    import torchvision.transforms.functional as functional
    from PIL import Image, ImageFile, ImageFilter, ImageOps
    from safetensors.numpy import save_file
    from torchvision.transforms.autoaugment import AutoAugment, RandAugment, _apply_op
except ImportError as error:
    sys.exit(f"generate.py: {sys.executable} has no {error.name}: it needs pillow, numpy, torchvision and safetensors")

FOLDER = pathlib.Path(__file__).resolve().parent


def picture(width, height):
    """Returns a smooth image with edges, which tests chroma subsampling and scaled decoding."""
    y, x = numpy.mgrid[:height, :width].astype(float)
    wave = 128 + 100 * numpy.sin(0.03 * x) * numpy.cos(0.05 * y)
    checks = numpy.where((x // 37 + y // 23) % 2 == 0, 200, 40)
    return Image.fromarray(numpy.stack([wave, 255 * x / width, checks], 2).astype(numpy.uint8))


def write_jpegs():
    small, large = picture(203, 117), picture(603, 417)
    for name, sampling in {"444": 0, "422": 1, "420": 2}.items():
        small.save(FOLDER / f"small_{name}.jpg", quality=85, subsampling=sampling)
        small.save(FOLDER / f"small_{name}_progressive.jpg", quality=85, subsampling=sampling, progressive=True)
    small.convert("L").save(FOLDER / "small_grey.jpg", quality=85)
    large.save(FOLDER / "large_420.jpg", quality=85, subsampling=2)
    large.save(FOLDER / "large_422_progressive.jpg", quality=85, subsampling=1, progressive=True)
    large.convert("L").save(FOLDER / "large_grey.jpg", quality=85)


def noisy(width, height, seed):
    random = numpy.random.default_rng(seed)
    smooth = numpy.asarray(picture(width, height), dtype=int)
    return Image.fromarray(numpy.clip(smooth + random.integers(-60, 61, smooth.shape), 0, 255).astype(numpy.uint8))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def png(levels, color_type, bits, palette=b"", transparency=b"", interlaced=False):
    """Encodes `levels` [height, width, channels] of up to 16 bits as PNG. Pillow cannot write all these kinds of PNG."""
    height, width = levels.shape[:2]

    def rows(part):
        out = b""
        for row in part:
            if bits == 16:
                out += b"\0" + row.astype(">u2").tobytes()
            elif bits == 8:
                out += b"\0" + row.astype("u1").tobytes()
            else:
                text = "".join(format(int(value), f"0{bits}b") for value in row.ravel())
                text += "0" * (-len(text) % 8)
                out += b"\0" + bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))
        return out

    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)] if interlaced else [(0, 0, 1, 1)]
    data = b"".join(rows(part) for x, y, dx, dy in passes if (part := levels[y::dy, x::dx]).size)

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + (chunk(b"PLTE", palette) if palette else b"")
            + (chunk(b"tRNS", transparency) if transparency else b"") + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def write_formats():
    """Writes files and their RGB pixels. The pixels are those of Pillow's convert("RGB") wherever Pillow reads the file correctly."""
    random = numpy.random.default_rng(1)
    image = noisy(23, 18, 2)
    alpha = Image.fromarray(random.integers(0, 256, (18, 23), dtype=numpy.uint8))
    rgba = image.copy()
    rgba.putalpha(alpha)
    rgb = numpy.asarray(image)
    deep = rgb.astype(int) * 256 + random.integers(0, 256, rgb.shape)
    palette = random.integers(0, 256, (16, 3), dtype=numpy.uint8)
    indices = random.integers(0, 16, (18, 23, 1))
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {
        "png_rgb": saved(image, "PNG"), "png_rgba": saved(rgba, "PNG"), "png_grey": saved(image.convert("L"), "PNG"),
        "png_grey_alpha": saved(rgba.convert("LA"), "PNG"), "png_palette": saved(image.quantize(200), "PNG"),
        "png_palette_transparent": png(indices, 3, 4, palette.tobytes(), bytes(range(0, 160, 10))),
        "png_palette_interlaced": png(indices, 3, 4, palette.tobytes(), interlaced=True),
        "png_one_bit": saved(image.convert("1"), "PNG"),
        "png_grey_two_bits": png(random.integers(0, 4, (18, 23, 1)), 0, 2),
        "png_grey_transparent": png(rgb[:, :, :1], 0, 8, transparency=struct.pack(">H", int(rgb[3, 4, 0]))),
        "png_rgb_transparent": png(rgb, 2, 8, transparency=struct.pack(">3H", *map(int, rgb[3, 4]))),
        "png_rgb_interlaced": png(rgb, 2, 8, interlaced=True), "png_rgba_interlaced": png(numpy.asarray(rgba), 6, 8, interlaced=True),
        "png_grey_16": png(deep[:, :, :1], 0, 16), "png_rgb_16": png(deep, 2, 16),
        "png_grey_alpha_16": png(deep[:, :, :2], 4, 16), "png_rgba_16_interlaced": png(numpy.dstack([deep, deep[:, :, :1]]), 6, 16, interlaced=True),
        "webp_lossless": saved(image, "WEBP", lossless=True), "webp_lossless_alpha": saved(rgba, "WEBP", lossless=True, exact=True),
        "webp_lossy": saved(image, "WEBP", quality=80), "webp_lossy_alpha": saved(rgba, "WEBP", quality=80),
        "webp_exif": saved(image, "WEBP", lossless=True, exif=exif),
        "jpeg": saved(image, "JPEG", quality=90), "jpeg_progressive": saved(image, "JPEG", quality=90, progressive=True),
        "jpeg_grey": saved(image.convert("L"), "JPEG", quality=90), "jpeg_cmyk": saved(image.convert("CMYK"), "JPEG", quality=90),
        "jpeg_exif": saved(image, "JPEG", quality=90, exif=exif), "jpeg_restart": saved(image, "JPEG", quality=90, restart_marker_blocks=1),
        "jpeg_rgb": saved(image, "JPEG", quality=90, keep_rgb=True),
    }
    tensors = {}
    for name, content in files.items():
        opened = Image.open(io.BytesIO(content))
        expected = numpy.asarray(opened.convert("RGB"))
        if name.startswith("png_grey_16"):  # Pillow would clip the values
            expected = numpy.repeat(deep[:, :, :1] >> 8, 3, 2).astype(numpy.uint8)
        tensors[f"{name}.file"] = numpy.frombuffer(content, numpy.uint8)
        tensors[f"{name}.rgb"] = numpy.ascontiguousarray(expected)
    save_file(tensors, FOLDER / "formats.safetensors")


def tiff(levels, color, bits=8, extra=(), planar=False, tile=0, big_endian=False, orientation=1, palette=None, order=1, signed=False, weights=()):
    """Encodes `levels` [height, width, samples] as an uncompressed TIFF. Pillow cannot write all these kinds of TIFF."""
    mark, (height, width, samples) = "><"[not big_endian], levels.shape

    def packed(part):
        if bits in (16, 32):
            return part.astype(f"{mark}{'ui'[signed]}{bits // 8}").tobytes()
        if bits == 12:
            return numpy.packbits([numpy.unpackbits(row.astype(">u2").view("u1").reshape(-1, 2), axis=1)[:, 4:].ravel() for row in part], axis=1).tobytes()
        rows = [numpy.unpackbits(row.astype("u1").reshape(-1, 1), axis=1)[:, 8 - bits:].ravel() for row in part]
        return numpy.packbits(rows, axis=1, bitorder="big" if order == 1 else "little").tobytes()

    side_y, side_x = (tile, tile) if tile else (5, width)
    padded = numpy.zeros((-(-height // side_y) * side_y if tile else height, -(-width // side_x) * side_x, samples), levels.dtype)
    padded[:height, :width] = levels
    parts = [packed(padded[y:y + side_y, x:x + side_x, plane]) for plane in ([[i] for i in range(samples)] if planar else [list(range(samples))])
             for y in range(0, padded.shape[0], side_y) for x in range(0, padded.shape[1], side_x)]
    offsets, lengths = [8 + sum(map(len, parts[:i])) for i in range(len(parts))], [len(part) for part in parts]
    tags = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * samples), 259: (3, [1]), 262: (3, [color]), 266: (3, [order]),
            274: (3, [orientation]), 277: (3, [samples]), 284: (3, [1 + planar])}
    tags |= {322: (4, [tile]), 323: (4, [tile]), 324: (4, offsets), 325: (4, lengths)} if tile else {
        273: (4, offsets), 278: (4, [side_y]), 279: (4, lengths)}
    if palette is not None:
        tags[320] = (3, [int(value) * 257 for value in palette.T.ravel()])
    if extra:
        tags[338] = (3, list(extra))
    if signed:
        tags[339] = (3, [2] * samples)
    if weights:  # of red, green and blue in the luma, in ten thousandths
        tags |= {529: (5, [number for weight in weights for number in (weight, 10000)]), 530: (3, [1, 1])}
    body, at = b"".join(parts), 8 + sum(lengths)
    behind, entries = b"", b""
    for tag, (kind, values) in sorted(tags.items()):
        content = struct.pack(f"{mark}{len(values)}{'H' if kind == 3 else 'I'}", *values)
        count = len(values) // 2 if kind == 5 else len(values)
        if len(content) > 4:
            content, behind = struct.pack(f"{mark}I", at + len(behind)), behind + content
        entries += struct.pack(f"{mark}HHI", tag, kind, count) + content.ljust(4, b"\0")
    return (b"MM\0*" if big_endian else b"II*\0") + struct.pack(f"{mark}I", at + len(behind)) + body + behind + struct.pack(
        f"{mark}H", len(tags)) + entries + b"\0" * 4


def bmp(width, height, bits, palette, rows, compression=0, masks=b"", header=40):
    fields = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(rows), 0, 0, len(palette) // 4, 0)
    if header == 12:
        fields, palette = struct.pack("<IHHHH", 12, width, height, 1, bits), b"".join(palette[i:i + 3] for i in range(0, len(palette), 4))
    fields = (fields + masks).ljust(header if header > 40 else 0, b"\0")
    offset = 14 + len(fields) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + fields + palette + rows


def write_raster_formats():
    """Writes BMP, GIF and TIFF files and their RGB pixels."""
    random = numpy.random.default_rng(7)
    image = noisy(23, 18, 5)
    rgb = numpy.asarray(image)
    rgba = numpy.dstack([rgb, random.integers(0, 256, (18, 23), dtype=numpy.uint8)])
    few, index = image.quantize(200), random.integers(0, 16, (18, 23, 1))
    grey, palette = rgb[:, :, :1], random.integers(0, 256, (256, 3), dtype=numpy.uint8)
    deep = rgb.astype(int) * 256 + random.integers(0, 256, rgb.shape)
    colors = bytes(random.integers(0, 256, 16 * 4, dtype=numpy.uint8))
    rows16 = random.integers(0, 65536, (18, 24), dtype=numpy.uint16).tobytes()
    rows32 = random.integers(0, 256, (18, 23, 4), dtype=numpy.uint8).tobytes()
    rows4 = random.integers(0, 256, (18, 12), dtype=numpy.uint8).tobytes()
    frames = [noisy(23, 18, 6 + i).quantize(30) for i in range(3)]
    files = {
        "bmp_rgb": saved(image, "BMP"), "bmp_palette": saved(few, "BMP"), "bmp_grey": saved(image.convert("L"), "BMP"),
        "bmp_one_bit": saved(image.convert("1"), "BMP"), "bmp_alpha": saved(Image.fromarray(rgba), "BMP"),
        "bmp_four_bits": bmp(23, 18, 4, colors, rows4), "bmp_old_header": bmp(23, 18, 4, colors, rows4, header=12),
        "bmp_few_colors": bmp(23, 18, 4, colors[:20], rows4), "bmp_16": bmp(23, 18, 16, b"", rows16),
        "bmp_565": bmp(23, 18, 16, b"", rows16, 3, struct.pack("<III", 0xF800, 0x7E0, 0x1F)), "bmp_top_first": bmp(23, -18, 32, b"", rows32),
        "bmp_masks": bmp(23, 18, 32, b"", rows32, 3, struct.pack("<III", 0xFF000000, 0xFF0000, 0xFF00)),
        "bmp_masks_in_header": bmp(23, 18, 32, b"", rows32, 3, struct.pack("<IIII", 0xFF, 0xFF00, 0xFF0000, 0xFF000000), header=124),
        "bmp_runs": bmp(6, 3, 8, colors, bytes([4, 1, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, 0, 2, 2, 0, 9, 7, 0, 1]), 1),
        "bmp_runs_of_halves": bmp(6, 2, 4, colors, bytes([5, 0x12, 0, 0, 0, 6, 0x34, 0x56, 0x78, 0, 0, 1]), 2),
        "gif_palette": saved(few, "GIF"), "gif_grey": saved(image.convert("L"), "GIF"),
        "gif_interlaced": saved(few, "GIF", interlace=True), "gif_moving": saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "gif_transparent": saved(few, "GIF", transparency=3), "gif_large": saved(noisy(203, 117, 9).quantize(256), "GIF"),
        **{f"tiff_{name}": saved(image, "TIFF", compression=name) for name in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")},
        "tiff_group4": saved(image.convert("1"), "TIFF", compression="group4"), "tiff_grey": saved(image.convert("L"), "TIFF"),
        "tiff_grey_alpha": saved(Image.fromarray(rgba).convert("LA"), "TIFF"), "tiff_palette": saved(few, "TIFF"),
        "tiff_alpha": saved(Image.fromarray(rgba), "TIFF"), "tiff_cmyk": saved(image.convert("CMYK"), "TIFF"),
        "tiff_color_differences": saved(image.convert("YCbCr"), "TIFF", compression="raw"),
        "tiff_white_is_zero": tiff(grey, 0), "tiff_four_bits": tiff(index, 1, 4), "tiff_one_bit_other_order": tiff(index % 2, 0, 1, order=2),
        "tiff_palette_of_16": tiff(index, 3, 4, palette=palette[:16]), "tiff_planes": tiff(rgb, 2, planar=True),
        "tiff_tiles": tiff(rgb, 2, tile=16), "tiff_tiled_planes": tiff(rgb, 2, tile=16, planar=True), "tiff_big_endian": tiff(rgb, 2, big_endian=True),
        "tiff_16": tiff(deep, 2, 16), "tiff_16_big_endian": tiff(deep, 2, 16, big_endian=True), "tiff_grey_16": tiff(deep[:, :, :1], 1, 16),
        "tiff_multiplied_alpha": tiff(rgba, 2, extra=(1,)), "tiff_unknown_extra": tiff(rgba, 2, extra=(0,)),
        **{f"tiff_orientation_{i}": tiff(rgb, 2, orientation=i) for i in range(2, 9)},
    }
    tensors = {}
    for name, content in files.items():
        expected = numpy.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
        if name == "tiff_grey_16":  # Pillow would clip the values
            expected = numpy.repeat(deep[:, :, :1] >> 8, 3, 2).astype(numpy.uint8)
        tensors[f"{name}.file"] = numpy.frombuffer(content, numpy.uint8)
        tensors[f"{name}.rgb"] = numpy.ascontiguousarray(expected)
    save_file(tensors, FOLDER / "raster_formats.safetensors")


def with_chunk(file, name, content, at=33, checksum=None):
    """Inserts a chunk into a PNG file, by default after its header."""
    checksum = zlib.crc32(name + content) if checksum is None else checksum
    return file[:at] + struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum) + file[at:]


def gif_of_wide_codes(indices):
    """Encodes indices [height, width] with codes of 11 bits, more than indices need."""
    height, width = indices.shape
    codes = [code for start in range(0, indices.size, 500) for code in [1 << 10, *map(int, indices.ravel()[start:start + 500])]] + [(1 << 10) + 1]
    bits = "".join(format(code, "011b") for code in reversed(codes))
    data = int(bits, 2).to_bytes(-(-len(bits) // 8), "little")
    blocks = b"".join(bytes([len(block)]) + block for block in (data[i:i + 255] for i in range(0, len(data), 255)))
    return (b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80 | 7, 0, 0) + bytes(range(256)) * 3 + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0)
            + b"\x0a" + blocks + b"\0;")


def write_unusual_formats():
    """Writes files that other programs read although they are unusual or lack something, and their RGB pixels. Files with an orientation
    also have the pixels `.turned` of exif_transpose()."""
    random = numpy.random.default_rng(11)
    image = noisy(23, 18, 12)
    rgb = numpy.asarray(image)
    deep = rgb[:, :, :1].astype(int) * 16 + random.integers(0, 16, (18, 23, 1))
    plain = saved(image, "PNG")
    data = plain.index(b"IDAT") + 4
    jpeg, progressive = saved(image, "JPEG", quality=90), saved(image, "JPEG", quality=90, progressive=True)
    frames = [Image.new("RGBA", (23, 18)) for _ in range(2)]
    frames[0].paste(image.crop((0, 0, 9, 7)), (6, 4))
    frames[1].paste(image, (0, 0))
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="8"/></x:xmpmeta>'
    exif = Image.Exif()
    exif[0x0112] = 3
    raw_profile = "\nexif\n{:8}\n{}\n".format(len(exif.tobytes()), exif.tobytes().hex()).encode()
    files = {
        "webp_one_color": bytes.fromhex("524946461400000057454250565038 4c080000002f63c01810888808"),  # one_color_no_palette.webp of libwebp (BSD)
        "webp_moving": saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True, minimize_size=True),
        "webp_moving_lossy": saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], quality=80),
        "jpeg_junk": jpeg[:20] + b"\x00junk\xff\x00\xff\xff" + jpeg[20:], "jpeg_no_end": jpeg[:-2], "jpeg_zeros_for_end": jpeg[:-2] + bytes(300),
        "jpeg_progressive_no_end": progressive[:-2], "jpeg_progressive_zeros_for_end": progressive[:-2] + bytes(300),
        "png_no_end": plain[:-12], "png_cut_end": plain[:-5], "png_bad_profile": with_chunk(plain, b"iCCP", b"icc\0\0not a profile"),
        "png_bad_checksum": plain[:-13] + bytes([plain[-13] ^ 1]) + plain[-12:], "png_bad_text": with_chunk(plain, b"zTXt", b"text\0\0none", checksum=1),
        "png_data_behind": plain[:data - 8] + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT")) + plain[data - 8:] + b"more",
        "png_grey_16_transparent": png(deep, 0, 16, transparency=struct.pack(">H", int(deep[3, 4, 0]))), "png_grey_12_in_16": png(deep, 0, 16),
        "tiff_grey_16_white_is_zero": tiff(deep, 0, 16), "tiff_grey_16_big_endian": tiff(deep, 1, 16, big_endian=True),
        "tiff_grey_12": tiff(deep, 1, 12), "tiff_grey_signed_16": tiff(deep, 1, 16, signed=True), "tiff_grey_signed_32": tiff(deep, 1, 32, signed=True),
        "tiff_grey_signed_8": tiff(rgb[:, :, :1], 1, signed=True),
        "tiff_color_differences_bt709": tiff(numpy.asarray(image.convert("YCbCr")), 6, weights=(2126, 7152, 722)),
        "gif_wide_codes": gif_of_wide_codes(random.integers(0, 256, (18, 23))),
        "bmp_run_beyond_row": bmp(6, 3, 8, bytes(range(64)), bytes([4, 1, 0, 5, 3, 4, 5, 6, 7, 0, 4, 1, 0, 0, 6, 2, 0, 0, 6, 3, 0, 1]), 1),
        "jpeg_xmp_8": jpeg[:2] + b"\xff\xe1" + struct.pack(">H", 31 + len(xmp)) + b"http://ns.adobe.com/xap/1.0/\0" + xmp + jpeg[2:],
        "png_xmp_8": with_chunk(plain, b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp), "png_exif_3": saved(image, "PNG", exif=exif),
        "png_text_exif_3": with_chunk(plain, b"tEXt", b"Raw profile type exif\0" + raw_profile),
        "png_compressed_text_exif_3": with_chunk(plain, b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw_profile)),
        "webp_exif_3": saved(image, "WEBP", lossless=True, exif=exif),
    }
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        files[f"jpeg_exif_{orientation}"] = saved(image, "JPEG", quality=90, exif=exif)
    ImageFile.LOAD_TRUNCATED_IMAGES = True  # Pillow otherwise refuses files that end right after their pixels
    tensors = {}
    for name, content in files.items():
        opened = Image.open(io.BytesIO(content))
        grey = opened.mode.startswith("I")  # 16-bit levels, which convert("RGB") would clip
        expected = numpy.repeat(numpy.asarray(opened)[:, :, None] >> 8, 3, 2).astype(numpy.uint8) if grey else numpy.asarray(opened.convert("RGB"))
        tensors[f"{name}.file"] = numpy.frombuffer(content, numpy.uint8)
        tensors[f"{name}.rgb"] = numpy.ascontiguousarray(expected)
        if "exif" in name or "xmp" in name:
            tensors[f"{name}.turned"] = numpy.ascontiguousarray(ImageOps.exif_transpose(opened).convert("RGB"))
        if grey:
            tensors[f"{name}.values"] = numpy.ascontiguousarray(numpy.asarray(opened).astype(numpy.int32))
    save_file(tensors, FOLDER / "unusual_formats.safetensors")


def write_augmentations():
    image, colors = noisy(25, 20, 3), Image.fromarray(numpy.random.default_rng(4).integers(0, 256, (40, 40, 3), dtype=numpy.uint8))
    flat = Image.new("RGB", (25, 20), (7, 200, 90))
    results = {"in": image, "colors": colors, "flat": flat}

    def add(name, *parameters, of="in", result):
        results[" ".join([of, name, *(repr(float(each)) for each in parameters)])] = result

    for factor in (0.0, 0.37, 1.0, 1.9):
        for name in ("brightness", "contrast", "saturation", "sharpness"):
            add(name, factor, result=getattr(functional, f"adjust_{name}")(image, factor))
    for shift in (-0.5, -0.1, 0.0, 0.03, 0.37):
        add("hue", shift, of="colors", result=functional.adjust_hue(colors, shift))
    for radius in (0.1, 0.5, 1.0, 1.37, 2.0, 17.5):
        add("blur", radius, result=image.filter(ImageFilter.GaussianBlur(radius)))
    add("grayscale", result=functional.rgb_to_grayscale(image, 3))
    for of, picture_ in (("in", image), ("flat", flat)):
        for name in ("AutoContrast", "Equalize", "Invert"):
            add(name, 0, of=of, result=_apply_op(picture_, name, 0.0, functional.InterpolationMode.NEAREST, None))
    space = {**AutoAugment()._augmentation_space(31, (20, 25)), **RandAugment()._augmentation_space(31, (20, 25))}
    for name, (magnitudes, signed) in space.items():
        if magnitudes.ndim == 0:
            continue
        for index in (1, 9, 30):
            for sign in (1, -1) if signed and index == 9 else (1,):
                magnitude = sign * float(magnitudes[index])
                add(f"{name} {index}", magnitude, result=_apply_op(image, name, magnitude, functional.InterpolationMode.NEAREST, None))
    tensors = {name: numpy.ascontiguousarray(numpy.asarray(result)) for name, result in results.items()}
    save_file(tensors, FOLDER / "augmentations.safetensors")


def main():
    write_jpegs()
    write_formats()
    write_raster_formats()
    write_unusual_formats()
    write_augmentations()


if __name__ == "__main__":
    main()
