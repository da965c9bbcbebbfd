#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Token ids of one text view. ids [B, L] int64; mask [B, L] bool, true = real token.
struct TextBatch {
  at::Tensor ids;
  at::Tensor mask;
};

/// What one step sees. Views are named: images `image` (or `global`, `local`, crops), texts `caption`, `summary`, `objects`.
/// Fields that nobody asked for stay empty.
struct Batch {
  std::map<std::string, at::Tensor> images;  // uint8 [B, 3, H, W]; normalised on the device by the model
  std::map<std::string, TextBatch> texts;
  at::Tensor regions;                        // float32 [B, R, F], PyramidCLIP's region features
  at::Tensor region_mask;                    // bool [B, R]
  at::Tensor labels;                         // int64 [B], -1 = none
  at::Tensor image_ids;                      // int64 [B], equal for pictures of the same bytes; undefined: nobody asked
  at::Tensor text_ids;                       // int64 [B], equal for the same caption; undefined: nobody asked
  std::vector<std::string> keys;             // sample keys, for messages and forensics

  std::int64_t size() const { return static_cast<std::int64_t>(keys.size()); }
  Batch to(const at::Device& device) const;
};

/// What an objective wants of the data and of the towers; nothing else is loaded or computed.
struct Needs {
  std::vector<std::string> image_views = {"image"};
  std::vector<std::string> texts = {"caption"};
  bool image_tokens = false;
  bool text_tokens = false;
  bool regions = false;
  bool ids = false;  // which pairs of the batch share a picture or a caption
};

}  // namespace tessera
