#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// CIFAR-10 or CIFAR-100 (Krizhevsky 2009) read from the archives of its "binary version".
struct CifarSettings {
  config::FilePath path;
  std::string split = "train";
  std::vector<std::string> templates = {"a photo of a {}."};
};

template <class Visitor>
void fields(Visitor& v, CifarSettings& s) {
  v("path", s.path,
    "folder with data_batch_1.bin, ... (CIFAR-10) or train.bin (CIFAR-100: fine labels), or its parent folder, where the "
    "archive was unpacked");
  v("split", s.split, "train or test", config::one_of({"train", "test"}));
  v("templates", s.templates, "captions; {} becomes the class name; empty: no captions");
}

/// Sample keys are FILE/NUMBER. Class names come from batches.meta.txt (CIFAR-10) or fine_label_names.txt (CIFAR-100) in the folder;
/// without batches.meta.txt, built-in names are used for CIFAR-10. Throws UserError if the folder is missing, or if a file is missing or
/// has the wrong size.
std::shared_ptr<IndexedSource> make_cifar(const CifarSettings& settings);

}  // namespace tessera
