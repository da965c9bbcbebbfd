#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/formats/paths.h"
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

/// Data sets in the layouts in which they are published. The make functions throw UserError naming the file, and the line or item, if a
/// file is missing or malformed.
namespace tessera {

/// MS COCO's captions (Chen et al. 2015). One sample is an image with its captions, usually five. Samples are in the order of `images`,
/// captions in the order of the file; keys are the images' file names.
struct CocoCaptionsSettings {
  config::FilePath annotations;
  config::FilePath images;
};

template <class Visitor>
void fields(Visitor& v, CocoCaptionsSettings& s) {
  v("annotations", s.annotations, "the file with `images` and `annotations`: captions_train2017.json, ...");
  v("images", s.images, "folder of the images: train2017, ...");
}

std::shared_ptr<IndexedSource> make_coco_captions(const CocoCaptionsSettings& settings);

/// Karpathy's splits of COCO, Flickr30k and Flickr8k (Karpathy and Fei-Fei 2015), the usual ones for retrieval. An image with its captions
/// is one sample. A caption is the field `raw` of a sentence. A key is FILEPATH/FILENAME, from the image's fields `filepath` (optional) and
/// `filename`.
struct KarpathySettings {
  config::FilePath annotations;
  config::FilePath images;
  std::string split = "train";
};

template <class Visitor>
void fields(Visitor& v, KarpathySettings& s) {
  v("annotations", s.annotations, "dataset_coco.json, dataset_flickr30k.json or dataset_flickr8k.json");
  v("images", s.images, "folder of the images; COCO's are in its subfolders train2014 and val2014");
  v("split", s.split, "train, restval (COCO), val or test; several joined by +: train+restval");
}

std::shared_ptr<IndexedSource> make_karpathy(const KarpathySettings& settings);

/// Flickr30k (Young et al. 2014), optionally with the phrases and boxes of Flickr30k Entities (Plummer et al. 2015). An image with its five
/// captions is one sample.
///
/// With `entities`, the captions are the sentences of Flickr30k Entities, and each phrase in them is an object without a label. The
/// object's box encloses all boxes of the phrase. If the phrase has no box (for example, a phrase for a whole scene), the object's box is
/// all zeros. Phrases that refer to nothing in the image (EN#0) are left out. Reading an image throws SampleError if its Entities files are
/// missing or damaged.
struct Flickr30kSettings {
  config::FilePath images;
  config::FilePath captions;
  config::FilePath entities;
  config::FilePath split;
};

template <class Visitor>
void fields(Visitor& v, Flickr30kSettings& s) {
  v("images", s.images, "folder of the images, NUMBER.jpg");
  v("captions", s.captions,
    "results_20130124.token (IMAGE#0<tab>CAPTION), or results.csv (image_name| comment_number| comment); empty: use the captions of "
    "`entities`");
  v("entities", s.entities,
    "folder of Flickr30k Entities, with Sentences/ and Annotations/: the phrases of its captions become annotated objects; empty: none");
  v("split", s.split, "file of the images' numbers, one per line (train.txt, val.txt or test.txt of Entities); empty: all");
}

std::shared_ptr<IndexedSource> make_flickr30k(const Flickr30kSettings& settings);

/// Sets the sentences of Flickr30k Entities as a sample's captions, and their phrases as its objects. `xml` is the Annotations file. Throws
/// SampleError `bad_annotation` if a file is damaged.
void set_entities(std::string_view sentences, std::string_view xml, Sample& sample);

/// CIFAR-10 or CIFAR-100 (Krizhevsky 2009) read from the archives of its "binary version". Sample keys are FILE/NUMBER. Class names come
/// from batches.meta.txt (CIFAR-10) or fine_label_names.txt (CIFAR-100) in the folder; without batches.meta.txt, built-in names are used
/// for CIFAR-10.
struct CifarSettings {
  config::FilePath path;
  std::string split = "train";
  std::vector<std::string> templates = {"a photo of a {}."};
};

template <class Visitor>
void fields(Visitor& v, CifarSettings& s) {
  v("path", s.path,
    "folder with data_batch_1.bin, ... (CIFAR-10) or train.bin (CIFAR-100: fine labels), or its parent folder, where the archive was unpacked");
  v("split", s.split, "train or test", config::one_of({"train", "test"}));
  v("templates", s.templates, "captions; {} becomes the class name; empty: no captions");
}

std::shared_ptr<IndexedSource> make_cifar(const CifarSettings& settings);

/// Images and their masks in two folders, under the same names: PATH/PICTURES/NAME.jpg, PATH/MASKS/NAME.png. Samples are in the order of
/// the list, or sorted by name; a key is an image's name within PATH.
struct SegmentationFolderSettings {
  config::FilePath path;
  std::string images;
  std::string masks;
  std::string list;
  std::string image_suffix = ".jpg";
  std::string mask_suffix = ".png";
  std::optional<config::FilePath> classes;
  std::vector<std::int64_t> values;
  bool reduce_zero_label = false;
  std::int64_t ignored_value = 255;
  std::int64_t background_class = -1;
};

template <class Visitor>
void fields(Visitor& v, SegmentationFolderSettings& s) {
  v("path", s.path, "the data set's folder");
  v("pictures", s.images, "folder of the images within it: JPEGImages, leftImg8bit/val, ...");
  v("masks", s.masks, "folder of the masks within it, PNG files of class values (gray levels or palette indices)");
  v("list", s.list,
    "text file within it that names the samples, one per line, without suffix; empty: all images of the folder and its subfolders");
  v("picture_suffix", s.image_suffix, "the image's file name is the sample's name plus this: .jpg, _leftImg8bit.png, ...");
  v("mask_suffix", s.mask_suffix, "the mask's file name is the sample's name plus this: .png, _gtFine_labelIds.png, ...");
  v("classes", s.classes,
    "file of class names, one class per line, in the order of their values; several names of a class are separated by commas; null: the "
    "task supplies the names");
  v("values", s.values,
    "each class's value in the masks, in the order of the classes; pixels of other values are ignored; empty: 0, 1, 2, ...",
    config::in_range(0, 255));
  v("reduce_zero_label", s.reduce_zero_label,
    "ignore pixels of value 0, and make value 1 the first class (mmsegmentation's setting of this name)");
  v("ignored_value", s.ignored_value, "value of pixels to ignore", config::in_range(0, 255));
  v("background_class", s.background_class, "index of the background among the classes, -1: none", config::at_least(-1));
}

std::optional<config::Problem> validate(const SegmentationFolderSettings& settings);
std::shared_ptr<IndexedSource> make_segmentation_folder(const SegmentationFolderSettings& settings);

/// Images in folders. Either there is one folder per class, PATH/CLASS/.../image.jpg, and classes are numbered in the order of their sorted
/// names (as in torchvision's ImageFolder). Or the images are in PATH itself or in folders that are not classes, as img2dataset writes
/// them: PATH/00000/000000000.jpg with .txt and .json files next to each image.
struct ImageFolderSettings {
  config::FilePath path;
  std::optional<config::FilePath> captions;
  std::optional<config::FilePath> texts;
  std::optional<bool> classes;
  std::string template_ = "a photo of a {}.";
};

template <class Visitor>
void fields(Visitor& v, ImageFolderSettings& s) {
  v("path", s.path, "the folder");
  v("captions", s.captions,
    "file of lines IMAGE<tab>CAPTION, with image names relative to the folder; null: captions.tsv in the folder, if it exists");
  v("texts", s.texts, "folder with the images' texts: NAME.txt for image NAME, one caption per line; null: next to the images");
  v("classes", s.classes,
    "whether the folders inside are classes; null: yes, unless img2dataset wrote them (their names have only digits, and there is "
    "NAME_stats.json next to a folder, or a .txt or .json file in it)");
  v("template", s.template_,
    "caption for an image that has none (in `captions`, in a .txt file next to it, one per line, or in the fields caption and "
    "captions of a .json file); {} becomes the class name; empty: no caption");
}

std::shared_ptr<IndexedSource> make_image_folder(const ImageFolderSettings& settings);

/// WinoGAViL (Bitton et al. 2022) in Parquet files with the columns of its copy on Hugging Face's Hub: `cue`, `candidates` (names),
/// `candidate_images` (the images of these names, as bytes or {bytes, path}) and `associations` (the names that belong to the cue). A
/// sample is one candidate of an instance (a row); the candidates of an instance follow one another. Its key is CUE/NUMBER/NAME, with the
/// row's number, and its fields are {"instance", "cue", "candidates" (their number), "candidate",
/// "associated"}.
struct WinogavilSettings {
  PathList path;
};

template <class Visitor>
void fields(Visitor& v, WinogavilSettings& s) {
  v("path", s.path,
    "Parquet files with the columns cue, candidates, candidate_images and associations: one file, a list, a pattern or "
    "a folder");
}

/// Throws UserError also if a column is missing, or if a row has not one image for each name.
std::shared_ptr<IndexedSource> make_winogavil(const WinogavilSettings& settings);

}  // namespace tessera
