#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/fields.h>
#include <tessera/config/file_path.h>
#include <tessera/data/image/image_settings.h>
#include <tessera/data/loading/caption_view.h>
#include <tessera/data/loading/region_views.h>

namespace tessera {

/// The maximum number of patches per image in one part of the run, for resize_mode naflex.
struct ResolutionStep {
  double until = 1;  // end of this part, as a fraction of the run
  std::int64_t max_patches = 256;
};

template <class Visitor>
void fields(Visitor& v, ResolutionStep& s) {
  v("until", s.until, "share of the run's steps at which this part ends", config::in_range(0, 1));
  v("max_patches", s.max_patches, "maximum number of patches per image", config::at_least(1));
}

/// Sampling with concept balance (MetaCLIP, Xu et al. 2023, arXiv 2309.16671).
struct BalanceSettings {
  config::FilePath counts;
  std::int64_t threshold = 20'000;
};

template <class Visitor>
void fields(Visitor& v, BalanceSettings& s) {
  v("counts", s.counts, "file with the entries and their counts, which tessera-data concepts writes");
  v("threshold", s.threshold, "number of samples per epoch down to which frequent entries are thinned out", config::at_least(1));
}

/// The settings data.loader of a run.
struct LoaderSettings : ImageSettings {
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
  std::int64_t prefetch = 4;        // batches
  std::int64_t prefetch_mb = 2048;  // MiB
  bool shuffle = true;
  std::string caption_choice = "random";
  std::optional<CaptionViewSettings> captions;
  std::optional<NegativeViewSettings> negatives;
  std::optional<BoxViewSettings> boxes;
  std::int64_t max_regions = 0;
  std::vector<ResolutionStep> resolution;
  double max_bad_share = 0.1;
  std::int64_t max_bad_run = 1000;
  std::int64_t skipped_list = 10'000;
  std::int64_t retries = 3;
  double retry_seconds = 1;
  std::string on_failure = "stop";
  double warn_after = 60;
  double timeout = 500;
  std::optional<BalanceSettings> balance;
};

template <class Visitor>
void fields(Visitor& v, LoaderSettings& s) {
  v("batch_size", s.batch_size, "samples per step and process; a run with training.global_batch computes this number", config::at_least(1));
  v("threads", s.threads, "decoding threads; affects only speed", config::in_range(1, config::kMostThreads));
  v("prefetch", s.prefetch, "batches kept ready", config::at_least(1));
  v("prefetch_mb", s.prefetch_mb,
    "maximum MiB in total for samples being prepared and batches kept ready; one image and one batch are always allowed",
    config::at_least(1));
  v("shuffle", s.shuffle, "draw a new permutation of all samples in each epoch");
  v("balance", s.balance,
    "use only part of the samples in each epoch, such that frequent concepts are rarer and rare ones stay: {counts: FILE, threshold: 20000} "
    "(docs/data.md); null: all samples");
  v("caption_choice", s.caption_choice,
    "which of several captions a sample is trained with; all: each of them in every epoch, as a sample of its own",
    config::one_of({"random", "first", "all"}));
  v("captions", s.captions,
    "the view `captions`, K captions per image, for objectives that need it (docs/data.md): {slots: [{count: 8, "
    "max_sentences: 3}]} draws them from the sentences of the data's text fields, {choice: all or random, count: 5} takes "
    "captions as they are; null: no such view");
  v("negatives", s.negatives,
    "the view `negatives`, {count: H} texts per image that almost describe it, for objectives that need it "
    "(docs/data.md); null: no such view");
  v("boxes", s.boxes,
    "boxes of objects in image views, and the views `phrases` and `phrase_negatives` of their texts, for objectives that "
    "need them (docs/data.md): {count: R, negatives: H}; null: none");
  v("max_regions", s.max_regions,
    "maximum number of region features per sample; the first ones are used, because detectors write the most confident first; 0: all",
    config::at_least(0));
  v("resolution", s.resolution,
    "for images that keep their shapes (model.preprocessing.resize_mode: naflex), the maximum number of patches per image in parts "
    "of the run, as in [{until: 0.8, max_patches: 128}]; model.preprocessing.max_patches applies after the last part and in evaluation");
  v("max_bad_share", s.max_bad_share, "stop when more than this share of the samples is unreadable (after 100 samples)",
    config::in_range(0, 1));
  v("max_bad_run", s.max_bad_run, "stop when this many samples in a row are unreadable", config::at_least(1));
  v("skipped_list", s.skipped_list,
    "maximum number of unreadable samples to list in the run's skipped.jsonl; further ones are only counted", config::at_least(0));
  v("retries", s.retries, "how often a sample is read again when its source fails (a disk, a network, a command)",
    config::at_least(0));
  v("retry_seconds", s.retry_seconds, "seconds to wait before the first retry; doubled for each further retry",
    config::at_least(0));
  v("on_failure", s.on_failure, "after the last retry: stop the run, or skip the sample and count it as io_error",
    config::one_of({"stop", "skip"}));
  v("warn_after", s.warn_after,
    "seconds of waiting for one sample after which the log says which sample it is and what its thread is doing",
    config::above(0));
  v("timeout", s.timeout,
    "seconds of waiting for one sample after which the run stops, 0: never; keep it below distributed.timeout, so that the "
    "waiting process can report what it waits for",
    config::at_least(0));
  fields(v, static_cast<ImageSettings&>(s));
}

}  // namespace tessera
