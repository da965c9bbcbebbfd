#!/usr/bin/env python3
"""Writes the files of this folder: miniature benchmarks for the suites in configs/suites, in the layouts of the original archives.

Images and captions are made up (Apache-2.0, as the rest of the repository) and contain nothing from a benchmark. They are in the
repository, so run this script only to add files.
"""
import json
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent
COLORS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


def picture(name, color):
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 12), COLORS[color]).save(path, quality=60)


def text(name, content):
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def write_json(name, content):
    text(name, json.dumps(content) + "\n")


def json_lines(name, rows):
    text(name, "".join(json.dumps(row) + "\n" for row in rows))


def captions(color):
    return [f"a {color} picture", f"something {color}", f"all is {color}", f"it is {color}", f"{color} everywhere"]


def karpathy(file_names, split_names):
    images = [{"filename": name, "filepath": path, "split": split, "sentences": [{"raw": raw} for raw in captions(color)]}
              for (path, name, color), split in zip(file_names, split_names)]
    for image in images:
        if not image["filepath"]:
            del image["filepath"]
    return {"images": images, "dataset": "made up"}


def coco():
    for number, color in ((1, "red"), (2, "green")):
        picture(f"coco/val2014/COCO_val2014_{number:012}.jpg", color)
        picture(f"coco/val2017/{number:012}.jpg", color)
    names = [("val2014", f"COCO_val2014_{number:012}.jpg", color) for number, color in ((1, "red"), (2, "green"), (3, "blue"))]
    write_json("coco/dataset_coco.json", karpathy(names, ["test", "test", "train"]))
    write_json("coco/annotations/captions_val2017.json", {
        "images": [{"id": number, "file_name": f"{number:012}.jpg"} for number in (1, 2)],
        "annotations": [{"image_id": number, "caption": caption} for number, color in ((1, "red"), (2, "green"))
                        for caption in captions(color)]})


def long_captions():
    picture("flickr30k/flickr30k-images/1.jpg", "red")
    picture("flickr30k/flickr30k-images/2.jpg", "blue")
    write_json("flickr30k/dataset_flickr30k.json", karpathy([("", "1.jpg", "red"), ("", "2.jpg", "blue")], ["test", "test"]))
    for number, color in ((1, "red"), (2, "green")):
        picture(f"Urban1k/image/{number}.jpg", color)
        text(f"Urban1k/caption/{number}.txt", f"The picture is {color}. There is nothing else in it.")
    for number, color in ((1, "red"), (2, "green")):
        picture(f"ShareGPT4V/data/sam/images/sa_{number}.jpg", color)
    json_lines("ShareGPT4V/share4v_1k.jsonl", [
        {"image": f"sam/images/sa_{number}.jpg", "caption": f"All of it is {color}.\nNothing else is there. It is {color}."}
        for number, color in ((1, "red"), (2, "green"))])
    for number, color, split in ((0, "red", "test"), (1, "green", "test"), (2, "blue", "train")):
        picture(f"docci/images/{split}_{number:05}.jpg", color)
    json_lines("docci/docci_descriptions.jsonlines", [
        {"split": split, "example_id": f"{split}_{number:05}", "image_file": f"{split}_{number:05}.jpg",
         "description": f"A {color} picture. It has no corners that are not {color}."}
        for number, color, split in ((0, "red", "test"), (1, "green", "test"), (2, "blue", "train"))])
    picture("docci/images_aar/aar_test_0a.jpg", "red")
    picture("docci/images_aar/aar_test_0b.jpg", "blue")
    json_lines("imageinwords/IIW-400/data.jsonl", [
        {"image/key": f"aar_test_0{letter}", "IIW": f"A {color} picture. Its upper half is {color}.\n\nSo is the lower.",
         "objects": []} for letter, color in (("a", "red"), ("b", "blue"))])


def classes():
    for name, color in (("red", "red"), ("green", "green")):
        picture(f"pictures/{name}/1.jpg", color)
    plane = {"red": bytes([200]) * 1024 + bytes([30]) * 2048, "green": bytes([30]) * 1024 + bytes([200]) * 1024 + bytes([30]) * 1024}
    rows = [(0, "red"), (1, "green")] * 2
    ten = FOLDER / "cifar-10-batches-bin"
    hundred = FOLDER / "cifar-100-binary"
    ten.mkdir(exist_ok=True)
    hundred.mkdir(exist_ok=True)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (ten / name).write_bytes(b"".join(bytes([label]) + plane[color] for label, color in rows))
    for name in ("train.bin", "test.bin"):
        (hundred / name).write_bytes(b"".join(bytes([0, label]) + plane[color] for label, color in rows * 3))
    (hundred / "fine_label_names.txt").write_text("\n".join(f"thing {i}" for i in range(100)) + "\n", encoding="utf-8")


def pairs():
    picture("winoground/data/images/ex_0_img_0.png", "red")
    picture("winoground/data/images/ex_0_img_1.png", "green")
    json_lines("winoground/data/examples.jsonl", [
        {"id": 0, "image_0": "ex_0_img_0", "image_1": "ex_0_img_1", "caption_0": "red, not green", "caption_1": "green, not red",
         "tag": "Adjective-Color", "secondary_tag": "", "num_main_preds": 1, "collapsed_tag": "Object"}])
    picture("colorswap/images/img_0_1.png", "red")
    picture("colorswap/images/img_0_2.png", "blue")
    write_json("colorswap/test.json", [
        {"id": 0, "caption_1": "a red thing by a blue one", "caption_2": "a blue thing by a red one", "image_1": "images/img_0_1.png",
         "image_2": "images/img_0_2.png", "image_source": "midjourney", "caption_source": "human"}])
    picture("cola/images/11.jpg", "red")
    picture("cola/images/12.jpg", "green")
    write_json("cola/COLA_multiobjects_matching_benchmark.json", [
        ["https://example.org/vg_gqa_images/11.jpg", "red on the left", "https://example.org/vg_gqa_images/12.jpg", "green on the left"]])
    for number, color in ((1, "red"), (2, "green")):
        picture(f"MMVP_VLM/MLLM_VLM Images/Color and Appearance/{number}.jpg", color)
    text("MMVP_VLM/Questions.csv",
         "Question ID,Type,Statement\n1,Color and Appearance,\"a cup, red\"\n2,Color and Appearance,\"a cup, green\"\n")


def negatives():
    kinds = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")
    for kind in kinds:
        write_json(f"sugarcrepe/{kind}.json", {"0": {"filename": "000000000001.jpg", "caption": "a red picture",
                                                     "negative_caption": "a green picture"}})
    for kind in kinds[2:]:
        write_json(f"sugarcrepe_pp/{kind}.json", [{"id": 0, "filename": "000000000002.jpg", "caption": "a green picture",
                                                   "caption2": "the picture is green", "negative_caption": "a red picture"}])
    for number, color in ((1, "red"), (2, "green")):
        picture(f"svo_probes/images/{number}.jpg", color)
    text("svo_probes/svo_probes.csv",
         "sentence,pos_triplet,neg_triplet,pos_url,neg_url,pos_image_id,neg_image_id,subj_neg,verb_neg,obj_neg\n"
         "A girl stands.,\"girl,stand,grass\",\"dog,stand,grass\",http://a,http://b,1,2,True,False,False\n"
         "A girl runs.,\"girl,run,grass\",\"girl,stand,grass\",http://a,http://b,2,1,False,True,False\n")
    write_json("foil/foilv1.0_test_2017.json", {
        "info": {}, "licenses": [], "images": [{"id": 1, "file_name": "COCO_val2014_000000000001.jpg"}],
        "annotations": [
            {"id": 5, "foil_id": 1, "image_id": 1, "foil": False, "caption": "a red bus", "target_word": "ORIG", "foil_word": "ORIG"},
            {"id": 5, "foil_id": 2, "image_id": 1, "foil": True, "caption": "a red car", "target_word": "bus", "foil_word": "car"}]})


def valse():
    folders = {"existence": "visual7w/images", "plurals": "valse/plurals/test_images", "counting-hard": "visual7w/images",
               "counting-small-quant": "visual7w/images", "counting-adversarial": "visual7w/images",
               "relations": "valse/relations/test_images", "action-replacement": "swig/images_512", "actant-swap": "swig/images_512",
               "coreference-standard": "visdial/images", "coreference-hard": "visdial/test_images", "foil-it": "coco/val2014"}
    for name, folder in folders.items():
        image = "COCO_val2014_000000000002.jpg" if name == "foil-it" else "made_up.jpg"
        if name != "foil-it":
            picture(f"{folder}/{image}", "green")
        write_json(f"valse/{name}.json", {
            f"{name}_0": {"dataset": "made up", "linguistic_phenomena": name, "image_file": image, "caption": "a green thing",
                          "foil": "no green thing", "mturk": {"foil": 0, "caption": 3, "other": 0}},
            f"{name}_1": {"dataset": "made up", "linguistic_phenomena": name, "image_file": image, "caption": "doubtful",
                          "foil": "as doubtful", "mturk": {"foil": 2, "caption": 1, "other": 0}}})


def places():
    picture("aro/images/21.jpg", "red")
    box = {"image_id": 21, "image_path": "21.jpg", "bbox_x": 1, "bbox_y": 2, "bbox_w": 9, "bbox_h": 8}
    write_json("aro/visual_genome_relation.json", [
        dict(box, relation_name="behind", true_caption="the cup is behind the door", false_caption="the door is behind the cup"),
        dict(box, relation_name="on", true_caption="the cup is on the door", false_caption="the door is on the cup")])
    write_json("aro/visual_genome_attribution.json", [
        dict(box, attributes=["red", "old"], obj1_name="cup", obj2_name="door", true_caption="the red cup and the old door",
             false_caption="the old cup and the red door")])
    for name, image in (("coco_karpathy", "val2014/COCO_val2014_000000000001.jpg"), ("flickr30k", "flickr30k-images/1.jpg")):
        write_json(f"aro/{name}_test.json", [{"image": image, "caption": ["A red dog, on a white beach.", "Red", "a dog near the old door"]}])
    for part in ("controlled_images", "controlled_clevr"):
        picture(f"whatsup/{part}/cup_on_chair.jpeg", "blue")
        write_json(f"whatsup/{part}_dataset.json", [
            {"image_path": f"data/{part}/cup_on_chair.jpeg",
             "caption_options": [f"A cup {where} a chair" for where in ("on", "under", "to the left of", "to the right of")]}])
    picture("whatsup/vg_images/31.jpg", "blue")
    for part, number in (("coco", 2), ("vg", 31)):
        write_json(f"whatsup/{part}_qa_one_obj.json", [[number, "A photo of a cup on the left", "A photo of a cup on the right"]])
        write_json(f"whatsup/{part}_qa_two_obj.json", [[number, "A cup to the left of a hat", "A cup to the right of a hat"]])


def choices():
    header = "image_path,correct_answer,caption_0,caption_1,caption_2,caption_3,correct_answer_template\n"
    text("negbench/images/COCO_val_mcq_llama3.1_rephrased.csv",
         header + "data/coco/images/val2017/000000000001.jpg,0,\"red, but no green\",a green thing,no red thing,\"green, but no red\",hybrid\n")
    picture("VOCdevkit/VOC2007/JPEGImages/000001.jpg", "green")
    text("negbench/images/VOC2007_mcq_llama3.1_rephrased.csv",
         header + "data/voc2007/JPEGImages/000001.jpg,0,no red thing,a red thing,\"red, but no green\",no green thing,negative\n")
    for subset in ("absolute_size", "count"):
        for number, color in ((0, "red"), (1, "blue")):
            picture(f"spec/{subset}/thing/{number}.jpg", color)
        write_json(f"spec/{subset}/image2text.json", [
            {"query": f"thing/{number}.jpg", "keys": ["a red thing", "a blue thing"], "label": number} for number in (0, 1)])
        write_json(f"spec/{subset}/text2image.json", [
            {"query": f"a {color} thing", "keys": ["thing/0.jpg", "thing/1.jpg"], "label": number}
            for number, color in ((0, "red"), (1, "blue"))])
    picture("vg/VG_100K/1.jpg", "red")
    picture("hake/vcoco/val2014/1.jpg", "green")
    picture("swig/dialing_8.jpg", "blue")
    for name, image in (("Attribute/vaw/color", "VG_100K/1.jpg"), ("Attribute/vg/color", "VG_100K/1.jpg"),
                        ("Object/Location/vg_location/vg_obj_mid", "VG_100K/1.jpg"), ("Relation/vg/spatial", "VG_100K/1.jpg"),
                        ("Object/Size/hake_size/hake_obj_large", "vcoco/val2014/1.jpg"), ("Relation/hake_action", "vcoco/val2014/1.jpg"),
                        ("Object/Size/swig_size/swig_tool/swig_tool_small", "dialing_8.jpg"), ("Relation/swig_action", "dialing_8.jpg")):
        write_json(f"vl_checklist/data/{name}.json", [[image, {"POS": ["a red thing"], "NEG": ["a blue thing"]}],
                                                      ["VG_100K/gone.jpg", {"POS": ["a cup"], "NEG": ["a hat"]}]])


if __name__ == "__main__":
    for part in (coco, long_captions, classes, pairs, negatives, valse, places, choices):
        part()
