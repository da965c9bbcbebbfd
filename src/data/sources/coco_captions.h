#pragma once

#include <memory>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// MS COCO's captions (Chen et al. 2015). One sample is an image with its captions, usually five.
struct CocoCaptionsSettings {
  config::FilePath annotations;
  config::FilePath images;
};

template <class Visitor>
void fields(Visitor& v, CocoCaptionsSettings& s) {
  v("annotations", s.annotations, "the file with `images` and `annotations`: captions_train2017.json, ...");
  v("images", s.images, "folder of the images: train2017, ...");
}

/// Samples are in the order of `images`, captions in the order of the file; keys are the images' file names. Throws UserError
/// naming the file and the invalid item.
std::shared_ptr<IndexedSource> make_coco_captions(const CocoCaptionsSettings& settings);

}  // namespace tessera
