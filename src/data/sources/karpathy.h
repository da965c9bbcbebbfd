#pragma once

#include <memory>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Karpathy's splits of COCO, Flickr30k and Flickr8k (Karpathy and Fei-Fei 2015), the usual ones for retrieval. An image with
/// its captions is one sample.
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

/// A caption is the field `raw` of a sentence. A key is FILEPATH/FILENAME, from the image's fields `filepath` (optional) and `filename`.
/// Throws UserError naming the file and the invalid item.
std::shared_ptr<IndexedSource> make_karpathy(const KarpathySettings& settings);

}  // namespace tessera
