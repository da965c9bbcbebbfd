#include "src/data/shapes/shapes.h"
#include "src/data/sources/benchmarks.h"
#include "src/data/sources/filtered_source.h"
#include "src/data/sources/mixture.h"
#include "src/data/sources/tables.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/data/tokenizers/engine_tokenizers.h"
#include "src/data/tokenizers/sentencepiece.h"
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

SourceRegistry& sources() {
  static SourceRegistry registry = [] {
    SourceRegistry list("source");
    add_source<ShapesSettings>(list, "shapes", "built-in procedural images of colored shapes, fully annotated; needs no files",
                               [](const ShapesSettings& settings) { return std::make_shared<ShapesSource>(settings); });
    add_source<WebDatasetSettings>(list, "webdataset",
                                   "samples in plain local tar shards, as the WebDataset library writes them",
                                   make_webdataset);
    add_source<ImageFolderSettings>(list, "image_folder", "images in folders named after their classes",
                                    make_image_folder);
    add_source<CsvSettings>(list, "csv", "images listed in a text table (CSV, TSV), with OpenCLIP's columns", make_csv);
    add_source<CocoCaptionsSettings>(list, "coco_captions",
                                     "COCO's annotation file of captions and its folder of images", make_coco_captions);
    add_source<KarpathySettings>(list, "karpathy", "Karpathy's splits of COCO, Flickr30k and Flickr8k", make_karpathy);
    add_source<JsonLinesSettings>(list, "json_lines",
                                  "images listed in files of JSON objects, one per line (DOCCI, ImageInWords)",
                                  make_json_lines);
    add_source<ParquetSettings>(list, "parquet",
                                "rows of Parquet files and Arrow files, as Hugging Face datasets and img2dataset write them",
                                make_parquet);
    add_source<Flickr30kSettings>(list, "flickr30k", "Flickr30k, with the phrases and boxes of Flickr30k Entities",
                                  make_flickr30k);
    add_source<CifarSettings>(list, "cifar10", "CIFAR-10 or CIFAR-100, from their binary files", make_cifar);
    add_source<SegmentationFolderSettings>(list, "segmentation_folder",
                                           "images and masks in folders, the layout of segmentation data sets (VOC, ADE20K, Cityscapes)",
                                           make_segmentation_folder);
    add_source<WinogavilSettings>(
        list, "winogavil",
        "WinoGAViL's cues and candidates, from Parquet files with the columns of its copy on the Hub", make_winogavil);
    list.add<MixtureSettings>("mixture", "several sources, mixed in training by `mode`", make_mixture);
    return list;
  }();
  return registry;
}

TokenizerRegistry& tokenizers() {
  static TokenizerRegistry registry = [] {
    TokenizerRegistry list("tokenizer");
    list.add<ClipBpeSettings>("clip-bpe", "CLIP's byte pairs, as in OpenCLIP", make_clip_bpe);
    list.add<SentencePieceSettings>("sentencepiece", "a SentencePiece model, run by the SentencePiece library", make_sentencepiece);
    list.add<TokenizerJsonSettings>("tokenizer_json", "a tokenizer.json, as Hugging Face's tokenizers read it", make_tokenizer_json);
    list.add<WordPieceSettings>("wordpiece", "BERT's word pieces, as in Hugging Face's BertTokenizer", make_wordpiece);
    return list;
  }();
  return registry;
}

}  // namespace tessera
