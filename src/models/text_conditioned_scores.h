#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "src/models/text_conditioned_pool.h"

namespace tessera {

/// Scores many texts against many images, without gradients. The score of text t and an image with tokens x is the cosine of v(x, t) with
/// t, where v(x, t) is the output of a TextConditionedPool (FLAIR, arXiv 2412.03561, section 3.2). The texts' queries are projected once,
/// and each image's keys and values once for all texts. Tensors of shape [images, texts, D] and [images, texts, heads, P] are computed for
/// only some of the images and texts at a time; on a CPU, the images are divided among threads. Computes in float32, or in float64 if the
/// pool's weights are float64, on the pool's device, where the results stay. Apart from rounding, a result does not depend on the other
/// texts and images, and patch_similarity() does not depend on the image's other patches.
class TextConditionedScores {
 public:
  /// texts: [M, D] floating-point, not normalized. The pool must outlive this object, and its weights must not change. Throws c10::Error if
  /// the width of the texts is not the pool's.
  TextConditionedScores(TextConditionedPool& pool, const at::Tensor& texts);

  /// Returns the cosine of each image's pooled vector with each text, [N, M]. image_tokens: [N, P, D] floating-point, P above 0.
  at::Tensor similarity(const at::Tensor& image_tokens) const;
  /// Returns the cosines of each image's pooled vectors with k candidate texts, [N, k]. candidates: int64 [N, k], the index of each
  /// candidate among the M texts (0 to M - 1).
  at::Tensor similarity(const at::Tensor& image_tokens, const at::Tensor& candidates) const;
  /// Pools each patch separately, together with the zero token, and returns the cosine of the result with each text: [N, P, M]. Without a
  /// zero token, every text would get the same pooled vector, because attention over a single patch always returns that patch's value.
  at::Tensor patch_similarity(const at::Tensor& image_tokens) const;
  /// Returns how much each text attends to each patch, [N, P, M]: the mean of the heads' weights, leaving out the weight of the zero token.
  at::Tensor attention(const at::Tensor& image_tokens) const;

  /// The number M of texts.
  std::int64_t count() const { return unit_texts_.size(0); }

 private:
  struct Image {  // keys and values of several images, [N, H, P, D/H]
    at::Tensor keys, values;
  };

  /// Splits rows into heads: [.., n, D] -> [.., H, n, D/H].
  at::Tensor by_head(const at::Tensor& rows) const;
  at::Tensor checked(const at::Tensor& image_tokens) const;
  Image keys_and_values(const at::Tensor& tokens) const;
  /// Returns the output of all heads together, [N, C, D], for queries [H, C, D/H] or [N, H, C, D/H].
  at::Tensor attended(const Image& images, const at::Tensor& queries) const;
  /// Returns the cosines of the heads' outputs with text embeddings: attended [N, C, D] and texts [C, D] or [N, C, D] -> [N, C]. The text
  /// embeddings must have norm 1.
  at::Tensor cosines(const at::Tensor& attended, const at::Tensor& texts) const;
  at::Tensor patch_similarity_of(const at::Tensor& tokens) const;
  at::Tensor attention_of(const at::Tensor& tokens) const;
  /// Returns how many texts may be scored at a time against this many images with this many patches each.
  std::int64_t tile_of(std::int64_t images, std::int64_t patches) const;
  template <class Body>
  void for_images(std::int64_t images, std::int64_t patches, const Body& body) const;

  TextConditionedPool& pool_;
  at::TensorOptions options_;  // type and device of the computation
  at::Tensor queries_;         // [H, M, D/H], projected and scaled
  at::Tensor unit_texts_;      // [M, D]
};

}  // namespace tessera
