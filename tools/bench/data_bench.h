#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>
#include <tessera/sample.h>

namespace tessera::bench {

/// Returns an image with the average statistics of a photograph: 1 / f noise (equally strong in every octave of frequency but the finest)
/// that is mostly gray, and a few hard edges. As a JPEG of quality 90, it has about as many bytes as a photograph of the same size.
Image photograph_like(std::int64_t height, std::int64_t width, std::uint64_t seed);

/// Returns a source of `count` images from photograph_like(), each stored in memory as a JPEG file.
std::shared_ptr<const Source> photograph_source(std::int64_t height, std::int64_t width, std::int64_t count);

struct DataBenchSettings {
  std::vector<std::shared_ptr<const Source>> sources;
  Preprocessing preprocessing;
  LoaderSettings loader;
  std::vector<std::int64_t> threads = {1};  // numbers of loader threads to measure
  double time_limit = 5;                    // seconds per measurement
  std::function<void(const std::string&)> progress;
};

/// The cost of loading the images of one source. Each stage is measured on one thread, and its cost includes reading. Seconds are CPU time
/// per image.
struct DataCost {
  struct Stage {
    std::string name;
    double seconds = 0;
  };
  struct Threads {
    std::int64_t count = 0;
    double images_per_second = 0;  // per second of wall-clock time
    double core_seconds = 0;       // CPU time of all threads, per image
  };
  std::string source;
  double bytes = 0;          // mean size of an image file
  std::int64_t samples = 0;  // number of samples measured in the last stage
  std::vector<Stage> stages;
  std::vector<Threads> loader;
};

struct DataBench {
  std::string machine;
  std::int64_t image_size = 0;
  std::vector<DataCost> costs;
};

/// Measures each source. Samples are read in order, and again from the start after the last one. Throws UserError for a source without
/// readable images.
DataBench measure_data(const DataBenchSettings& settings);

std::string to_markdown(const DataBench& bench);
std::string to_json(const DataBench& bench);

}  // namespace tessera::bench
