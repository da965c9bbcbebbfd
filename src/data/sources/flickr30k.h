#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Flickr30k (Young et al. 2014), optionally with the phrases and boxes of Flickr30k Entities (Plummer et al. 2015). An image
/// with its five captions is one sample.
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
    "results_20130124.token (IMAGE#0<tab>CAPTION), or results.csv (image_name| comment_number| comment); empty: use the "
    "captions of `entities`");
  v("entities", s.entities,
    "folder of Flickr30k Entities, with Sentences/ and Annotations/: the phrases of its captions become annotated "
    "objects; empty: none");
  v("split", s.split,
    "file of the images' numbers, one per line (train.txt, val.txt or test.txt of Entities); empty: all");
}

/// With `entities`, the captions are the sentences of Flickr30k Entities, and each phrase in them is an object without a label. The
/// object's box encloses all boxes of the phrase. If the phrase has no box (for example, a phrase for a whole scene), the object's box is
/// all zeros. Phrases that refer to nothing in the image (EN#0) are left out. Reading an image throws SampleError if its Entities files are
/// missing or damaged. make_flickr30k() throws UserError naming file and line.
std::shared_ptr<IndexedSource> make_flickr30k(const Flickr30kSettings& settings);

}  // namespace tessera
