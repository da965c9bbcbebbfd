#include "src/data/features/taught_folder.h"

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/sample.h>

namespace tessera {

std::uint64_t crop_fingerprint(std::uint64_t image, const std::string& view, std::int64_t crop) {
  return fingerprint(concat(view, " ", crop), image);
}

std::uint64_t text_fingerprint(std::string_view text) {
  return fingerprint(text);
}

TaughtFolder::TaughtFolder(const std::string& folder) : path_(folder), images_(folder + kTaughtImages), texts_(folder + kTaughtTexts) {
  const FeatureManifest &images = images_.manifest(), &texts = texts_.manifest();
  const bool fit = images.settings == texts.settings && images.weights == texts.weights && images.dtype == texts.dtype &&
                   images.tensors == texts.tensors && images.tensors.size() == 1 && images.tensors.front().name == kTaughtTensor &&
                   images.tensors.front().shape.size() == 1;
  try {
    if (fit) crops_ = nlohmann::json::parse(images.settings).at("data").at("teachers").at("crops").get<std::int64_t>();
  } catch (const nlohmann::json::exception&) {
    crops_ = 0;
  }
  if (!fit || crops_ < 1) user_error(path_, ": its images and texts are not embeddings of the same teachers; ", kFeatureWayOut);
}

namespace {

std::vector<std::uint8_t> read_row(const FeatureFolder& folder, const std::string& key, std::uint64_t content, const std::string& what) {
  try {
    return folder.read(key, content);
  } catch (const SampleError&) {
    user_error(folder.path(), ": holds nothing for sample ", printable(key), ", ", what, ": it was written for other data or settings; ",
               kFeatureWayOut);
  }
}

}  // namespace

std::vector<std::uint8_t> TaughtFolder::of_crop(const std::string& key, std::uint64_t image, const std::string& view,
                                                std::int64_t crop) const {
  return read_row(images_, key, crop_fingerprint(image, view, crop), concat("crop ", crop, " of the view ", view));
}

std::vector<std::uint8_t> TaughtFolder::of_text(const std::string& key, std::string_view text) const {
  return read_text_row(texts_, key, text);
}

std::vector<std::uint8_t> read_text_row(const FeatureFolder& folder, const std::string& key, std::string_view text) {
  return read_row(folder, key, text_fingerprint(text), concat("text \"", printable(text, 60), "\""));
}

}  // namespace tessera
