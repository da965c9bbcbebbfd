#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/data/loading/loader_statistics.h>
#include <tessera/data/source.h>
#include <tessera/preprocessing.h>
#include <tessera/sample.h>

namespace tessera {

class ReportedSamples;

/// A sample that is ready for evaluation.
struct EvaluationSample {
  std::int64_t index = 0;
  Sample sample;                    // the sample; its `image` is decoded and its `encoded` is empty
  std::uint64_t image = 0;          // fingerprint of the image as the source returns it
  at::Tensor pixels;                // uint8 [3, h, w], after the evaluation transform
  std::vector<std::uint8_t> mask;   // mask [h, w], transformed like the pixels; empty if there is no mask
  std::vector<float> depth;         // depths [h, w], transformed like the pixels; empty if there are none
};

/// Decodes a sample's image. Throws SampleError if the image is missing or damaged, or if the mask's size differs from the
/// image's.
void decode_image(EvaluationSample& sample, const Decoding& decoding);

/// Decodes and transforms a sample's image, and fills in `image`, `pixels`, `mask` and `depth`. Throws SampleError if the
/// image is missing or damaged, or if the mask's size differs from the image's.
void prepare_image(EvaluationSample& sample, const Preprocessing& preprocessing);

/// How far an EvaluationReader processes images. `prepared`: images are decoded and transformed. `decoded`: `sample` holds the image and
/// its mask at their original size. `as_read`: images are not decoded, so they may be missing or damaged; for callers that use only texts.
enum class EvaluationImages { prepared, decoded, as_read };

/// A function that takes an image's fingerprint and returns true if the image need not be prepared. In the EvaluationSample of such an
/// image, `image` and the size of the sample's image are set, but `pixels`, `mask` and `depth` stay empty. The function is called from
/// several threads.
using IsKnownImage = std::function<bool(std::uint64_t image)>;

/// Prepares images of a source in the background: those of the samples `indices`, ascending.
class ImageShare {
 public:
  struct Image {
    at::Tensor pixels;  // this and the next two as in EvaluationSample
    std::vector<std::uint8_t> mask;
    std::vector<float> depth;
    std::string bad_reason, text;  // as SampleError; empty if the image is good
  };

  ImageShare(const std::shared_ptr<const Source>& source, const Preprocessing& preprocessing, std::vector<std::int64_t> indices,
             std::int64_t threads);
  ~ImageShare();
  const std::vector<std::int64_t>& indices() const { return indices_; }
  /// Returns the images in the order of the indices. Must be called once. Throws UserError if the source cannot be read.
  std::vector<Image> take();

 private:
  struct Impl;
  std::vector<std::int64_t> indices_;
  std::unique_ptr<Impl> impl_;
};

/// Reads a source once, in order, with threads that prepare the samples; corrupt samples are skipped and counted.
class EvaluationReader {
 public:
  EvaluationReader(std::shared_ptr<const Source> source, const Preprocessing& preprocessing, std::int64_t batch_size,
                   std::int64_t threads, std::int64_t max_samples = -1,
                   EvaluationImages images = EvaluationImages::prepared, IsKnownImage is_known = {},
                   std::shared_ptr<ReportedSamples> reported = nullptr);
  ~EvaluationReader();

  /// Returns the next samples, at most batch_size; empty at the end.
  std::vector<EvaluationSample> next();
  /// Counts and reports a sample that next() returned as skipped, because its image, which another process decoded, is bad.
  void reject(const std::string& reason, const std::string& text);
  /// Throws UserError if all samples were read and none of them is good. next() calls it.
  void end() const;
  LoaderStatistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
