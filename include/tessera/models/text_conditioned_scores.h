#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <tessera/models/text_conditioned_pool.h>

namespace tessera {

/// Many texts asked of many images, without gradients: with v(x, t) what a TextConditionedPool finds for text t among the
/// tokens x, the cosine of v(x, t) with t (FLAIR, arXiv 2412.03561, section 3.2). The texts' queries are projected once, an
/// image's keys and values once for all texts. [images, texts, D] and [images, texts, heads, P] are held for a tile of them
/// alone; on a CPU threads share the images. Computes in float32, or float64 where the pool's weights are, on the pool's
/// device, where what it returns lies. Not a text, image or patch depends on which others there are, but for rounding.
class TextConditionedScores {
 public:
  /// texts [M, D] floating, not normalized; the pool outlives this, and its weights stay as they are. Throws c10::Error for
  /// texts of another width than the pool's.
  TextConditionedScores(TextConditionedPool& pool, const at::Tensor& texts);

  /// image_tokens [N, P, D] floating, P above 0; returns the cosine of each image's pooled vector with each text, [N, M].
  at::Tensor similarity(const at::Tensor& image_tokens) const;
  /// The same for some texts of each image alone: candidates [N, k] int64 below M; returns [N, k].
  at::Tensor similarity(const at::Tensor& image_tokens, const at::Tensor& candidates) const;
  /// The cosine of what each patch alone gives, pooled with the zero token, with each text: [N, P, M]. Without a zero token
  /// a patch gives every text its value.
  at::Tensor patch_similarity(const at::Tensor& image_tokens) const;
  /// How much each text looks at each patch: the mean of the heads' weights, without the zero token's, [N, P, M].
  at::Tensor attention(const at::Tensor& image_tokens) const;

  /// M.
  std::int64_t count() const { return unit_texts_.size(0); }

 private:
  struct Image {  // keys and values of some images, [N, H, P, D/H]
    at::Tensor keys, values;
  };

  /// [.., n, D] -> [.., H, n, D/H].
  at::Tensor by_head(const at::Tensor& rows) const;
  at::Tensor checked(const at::Tensor& image_tokens) const;
  Image keys_and_values(const at::Tensor& tokens) const;
  /// What the heads put together for queries [H, C, D/H] or [N, H, C, D/H]: [N, C, D].
  at::Tensor attended(const Image& images, const at::Tensor& queries) const;
  /// The cosines of what the heads gave with texts of length 1, attended [N, C, D] and texts [C, D] or [N, C, D]: [N, C].
  at::Tensor cosines(const at::Tensor& attended, const at::Tensor& texts) const;
  at::Tensor patch_similarity_of(const at::Tensor& tokens) const;
  at::Tensor attention_of(const at::Tensor& tokens) const;
  /// Texts of one tile for so many images.
  std::int64_t tile_of(std::int64_t images, std::int64_t patches) const;
  template <class Body>
  void for_images(std::int64_t images, std::int64_t patches, const Body& body) const;

  TextConditionedPool& pool_;
  at::TensorOptions options_;  // of what is computed
  at::Tensor queries_;         // [H, M, D/H], projected and scaled
  at::Tensor unit_texts_;      // [M, D]
};

}  // namespace tessera
