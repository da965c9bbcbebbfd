#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <tessera/models/text_conditioned_pool.h>

namespace tessera {

/// Scores many texts against many images, without gradients: if v(x, t) is what a TextConditionedPool returns for text
/// t and an image's tokens x, the score is the cosine of v(x, t) with t (FLAIR, arXiv 2412.03561, section 3.2). The
/// texts' queries are projected once, and each image's keys and values once for all texts. [images, texts, D] and
/// [images, texts, heads, P] exist only for a tile at a time; on a CPU, threads divide the images. Computes in float32,
/// or in float64 if the pool's weights are float64, on the pool's device, where the results stay. Apart from rounding,
/// a result does not depend on the other texts and images, and patch_similarity() does not depend on the image's other
/// patches.
class TextConditionedScores {
 public:
  /// texts [M, D] floating, not normalized. The pool must outlive this object, and its weights must not change. Throws
  /// c10::Error for texts of another width than the pool's.
  TextConditionedScores(TextConditionedPool& pool, const at::Tensor& texts);

  /// image_tokens [N, P, D] floating, P above 0; returns the cosine of each image's pooled vector with each text, [N,
  /// M].
  at::Tensor similarity(const at::Tensor& image_tokens) const;
  /// As above, but for only some texts of each image: candidates [N, k] int64 has their indices, which are below M.
  /// Returns [N, k].
  at::Tensor similarity(const at::Tensor& image_tokens, const at::Tensor& candidates) const;
  /// Pools each patch by itself with the zero token and returns its cosine with each text: [N, P, M]. Without a zero
  /// token, the pooled vector would be the same for every text: the patch's value.
  at::Tensor patch_similarity(const at::Tensor& image_tokens) const;
  /// Returns how much each text attends to each patch: the mean of the heads' weights, without the zero token's, [N, P,
  /// M].
  at::Tensor attention(const at::Tensor& image_tokens) const;

  /// The number M of texts.
  std::int64_t count() const { return unit_texts_.size(0); }

 private:
  struct Image {  // keys and values of some images, [N, H, P, D/H]
    at::Tensor keys, values;
  };

  /// Splits rows into heads: [.., n, D] -> [.., H, n, D/H].
  at::Tensor by_head(const at::Tensor& rows) const;
  at::Tensor checked(const at::Tensor& image_tokens) const;
  Image keys_and_values(const at::Tensor& tokens) const;
  /// Returns the heads' combined output for queries [H, C, D/H] or [N, H, C, D/H]: [N, C, D].
  at::Tensor attended(const Image& images, const at::Tensor& queries) const;
  /// Returns the cosines of the heads' outputs with text embeddings, which must have norm 1: attended [N, C, D] and texts
  /// [C, D] or [N, C, D] -> [N, C].
  at::Tensor cosines(const at::Tensor& attended, const at::Tensor& texts) const;
  at::Tensor patch_similarity_of(const at::Tensor& tokens) const;
  at::Tensor attention_of(const at::Tensor& tokens) const;
  /// Returns the number of texts per tile for this many images.
  std::int64_t tile_of(std::int64_t images, std::int64_t patches) const;
  template <class Body>
  void for_images(std::int64_t images, std::int64_t patches, const Body& body) const;

  TextConditionedPool& pool_;
  at::TensorOptions options_;  // type and device of the computation
  at::Tensor queries_;         // [H, M, D/H], projected and scaled
  at::Tensor unit_texts_;      // [M, D]
};

}  // namespace tessera
