#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Flickr30k (Young et al. 2014) with, where they are given, the phrases and boxes of Flickr30k Entities (Plummer et
/// al. 2015). A picture with its five captions is one sample.
struct Flickr30kSettings {
  config::FilePath images;
  config::FilePath captions;
  config::FilePath entities;
  config::FilePath split;
};

template <class Visitor>
void fields(Visitor& v, Flickr30kSettings& s) {
  v("images", s.images, "folder of the pictures, NUMBER.jpg");
  v("captions", s.captions,
    "results_20130124.token (PICTURE#0<tab>CAPTION), or results.csv (image_name| comment_number| comment); empty: "
    "those "
    "of `entities`");
  v("entities", s.entities,
    "folder of Flickr30k Entities, with Sentences/ and Annotations/: the phrases of its captions become annotated "
    "objects; empty: none");
  v("split", s.split,
    "file of the pictures' numbers, one a line (train.txt, val.txt or test.txt of Entities); empty: all");
}

/// With `entities` the captions are its sentences, and each phrase of one is an object: without a label, its box around
/// all boxes of the phrase and all zeros where there is none (scenes). Phrases that nothing in the picture shows (EN#0)
/// are left out. A picture without such files, or with damaged ones, is a SampleError. Throws UserError
/// naming file and line.
std::shared_ptr<IndexedSource> make_flickr30k(const Flickr30kSettings& settings);

}  // namespace tessera
