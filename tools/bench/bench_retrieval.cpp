#include <chrono>
#include <cmath>
#include <ctime>
#include <iostream>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "src/evaluation/metrics/retrieval.h"
#include "src/measure/machine.h"
#include "tools/bench/data_benchmarks.h"
#include "tools/command_line.h"
#include <tessera/base/text.h>

namespace tessera::tools {
namespace {

struct RetrievalOptions {
  std::int64_t images = 5000, captions = 25000, width = 512;
  std::optional<int> threads;
};

std::string megabytes(std::int64_t bytes) {
  return with_thousands(bytes / (1 << 20)) + " MiB";
}

int run_retrieval(const RetrievalOptions& options) {
  if (options.threads) at::set_num_threads(*options.threads);
  at::manual_seed(0);
  const at::Tensor images = at::randn({options.images, options.width});
  const at::Tensor owner = at::arange(options.captions, at::kLong).remainder(options.images);
  at::Tensor texts = at::randn({options.captions, options.width});
  for (std::int64_t begin = 0; begin < options.captions; begin += options.images) {
    const std::int64_t count = std::min(options.images, options.captions - begin);
    texts.narrow(0, begin, count).add_(images.narrow(0, 0, count), 0.3);
  }
  const std::int64_t before = memory_use(at::kCPU).resident;
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  const auto scores = metrics::retrieval_recall(images, texts, owner);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  const std::int64_t peak = memory_use(at::kCPU).resident_peak;
  std::cout << with_thousands(options.images) << " images, " << with_thousands(options.captions) << " captions of width "
            << options.width << ", " << at::get_num_threads() << " threads: " << concat(std::round(seconds * 100) / 100)
            << " s (" << concat(std::round(cpu * 100) / 100) << " s of processor time), peak memory " << megabytes(peak)
            << ", including " << megabytes(before) << " of embeddings and program\n"
            << "recall@1: " << scores.image_to_text[0] << " image to text, " << scores.text_to_image[0]
            << " text to image" << std::endl;
  return 0;
}

}  // namespace

std::function<int()> add_retrieval_benchmark(CLI::App& command) {
  auto options = std::make_shared<RetrievalOptions>();
  command.option_defaults()->take_last();
  const auto count = CLI::Range(std::int64_t{1}, std::int64_t{100'000'000});
  add_default(command, "--pictures", options->images, "number of image embeddings")->check(count);
  add_default(command, "--captions", options->captions, "number of caption embeddings")->check(count);
  add_default(command, "--width", options->width, "width of an embedding")->check(CLI::Range(1, 65536));
  add_threads(command, options->threads);
  command.footer(
      "Computes the recalls in both directions for random embeddings in memory, as the task `retrieval` does after the\n"
      "model has run.\n\n"
      "  tessera-bench retrieval --threads 2\n"
      "  tessera-bench retrieval --pictures 100000 --captions 1000000 --width 512");
  return [options] { return run_retrieval(*options); };
}

}  // namespace tessera::tools
