#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/data/formats/paths.h"
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Images listed in files of JSON objects, one per line: DOCCI, ImageInWords and others.
struct JsonLinesSettings {
  PathList path;
  config::FilePath images;
  std::string image_key = "image";
  std::vector<std::string> caption_key = {"caption"};
  std::vector<std::string> text_fields;
  std::string negatives_key = "negatives";
  std::string regions_key = "regions";
  std::string split;
  bool sentences = false;
};

template <class Visitor>
void fields(Visitor& v, JsonLinesSettings& s) {
  v("path", s.path, "files with one JSON object per line: one file, a list, a pattern, or a folder of .jsonl files");
  v("images", s.images, "folder of the images; empty: the folder of the list");
  v("image_key", s.image_key, "member with the image's file name; the extension may be missing");
  v("caption_key", s.caption_key, "members with captions, each a text or a list of texts");
  v("text_fields", s.text_fields,
    "members, each a text or a list of texts, that the view `captions` draws its sentences from; a line may lack some. For "
    "lines without captions (caption_key: []) the first of these members supplies the captions");
  v("negatives_key", s.negatives_key,
    "member with the image's hard negatives, captions that are wrong: a list of texts or of {kind, caption}; a line may "
    "lack it");
  v("regions_key", s.regions_key,
    "member with the image's objects: a list of {box: [left, top, right, bottom] in pixels, phrase, negatives: [texts that "
    "almost describe it]}; a line may lack it");
  v("split", s.split, "read only the lines of this split, such as test; empty: all");
  v("sentences", s.sentences,
    "make each sentence a caption of its own: texts are split at full stops, line ends and </s> (FLAIR's fine-grained "
    "retrieval)");
}

/// Throws UserError naming the file and the invalid line.
std::shared_ptr<IndexedSource> make_json_lines(const JsonLinesSettings& settings);

}  // namespace tessera
