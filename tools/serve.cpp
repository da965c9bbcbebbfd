#include <malloc.h>

#include <csignal>

#include <filesystem>
#include <iostream>
#include <thread>

#include <ATen/Parallel.h>

#include "src/evaluation/checkpoint_pool.h"
#include "src/evaluation/model_evaluation.h"
#include "src/measure/machine.h"
#include "src/remote/address.h"
#include "src/serving/http_server.h"
#include "src/training/run/run_loss.h"
#include "tools/checkpoint_arguments.h"
#include "tools/precision_argument.h"
#include "tools/programs.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/evaluation/evaluate.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

using namespace serving;

struct ServeOptions {
  std::vector<std::string> checkpoints;
  CheckpointOptions reading;
  std::string device = "auto";
  std::string images;
  std::string embeddings;
  std::string token_file;
  std::optional<int> threads;
  std::string precision = "float32";
  std::optional<std::int64_t> max_batch;
  Batching batching;
  Limits limits;
  HttpSettings http;
  bool quiet = false;
};

/// Returns a name for a model: its run's folder, or else its file without the ending.
std::string name_of(const InferenceModel& loaded) {
  const std::string run = run_folder_of(loaded.path);
  const std::filesystem::path path = run.empty() ? std::filesystem::path(loaded.path).replace_extension() : std::filesystem::path(run);
  return path.filename().string();
}

/// Splits NAME=PATH; the name is empty if there is none.
std::pair<std::string, std::string> named(const std::string& option) {
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos || remote::is_remote(option) || std::filesystem::exists(option)) return {"", option};
  return {option.substr(0, equals), option.substr(equals + 1)};
}

std::unique_ptr<ServedModel> load(const std::string& option, const ServeOptions& options) {
  auto [name, path] = named(option);
  InferenceModel loaded = load_for_inference(path, options.device, options.reading);
  EvaluationContext context;
  context.loss = checkpoint_loss(loaded);
  context.pool = checkpoint_pool(loaded);
  context.logit_scale = logit_scale_of(loaded.file.weights);
  if (name.empty()) name = name_of(loaded);
  return std::make_unique<ServedModel>(name, std::move(loaded), std::move(context), options.batching,
                                       precision_type(options.precision));
}

std::shared_ptr<const Source> image_source(const ServeOptions& options) {
  constexpr const char* kOption = "--images";
  if (options.images.empty()) return nullptr;
  return sources().make(sources().resolve(source_from_text(options.images, kOption), kOption), kOption);
}

void fill_gallery(ServedModel& model, const ServeOptions& options) {
  const std::shared_ptr<const Source> source = image_source(options);
  if (!options.embeddings.empty())
    model.gallery = Gallery::of_file(options.embeddings, model.embedder, model.loaded.model->embed_dim(), source);
  else if (source)
    model.gallery = Gallery::of_source(source, model.embedder, options.batching.max_batch, options.batching.threads);
}

std::vector<std::unique_ptr<ServedModel>> load_models(const ServeOptions& options) {
  std::vector<std::unique_ptr<ServedModel>> models;
  for (const std::string& option : options.checkpoints) {
    models.push_back(load(option, options));
    fill_gallery(*models.back(), options);
    for (const auto& other : models)
      if (other != models.back() && other->name == models.back()->name)
        user_error("--checkpoint ", option, ": another model is named ", other->name, ", too: give NAME=PATH");
  }
  return models;
}

void check(const ServeOptions& options) {
  if (options.checkpoints.size() > 1 && !options.embeddings.empty())
    user_error("--embeddings: a file has the embeddings of one model: give one --checkpoint, or --images");
}

int serve(ServeOptions options) {
  check(options);
  mallopt(M_ARENA_MAX, 4);  // otherwise freed images and bodies of a thousand connections stay in many arenas
  // Only the thread that waits for these signals receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  // A CPU multiplies a few inputs as fast as many, so larger batches would only make the first inputs of a batch wait for its last one.
  constexpr std::int64_t kOnCpu = 8, kOnGpu = 32;
  options.batching.max_batch = options.max_batch.value_or(parse_device(options.device).is_cpu() ? kOnCpu : kOnGpu);
  options.batching.threads = options.threads.value_or(at::get_num_threads());
  options.http.access_log = !options.quiet;
  options.http.page = io::read_file(config::shipped_folder() + "/serve.html");
  if (!options.token_file.empty()) options.http.token = std::string(strip(io::read_file(options.token_file)));
  if (!options.token_file.empty() && options.http.token.empty()) user_error("--token-file ", options.token_file, ": is empty");
  const auto service = std::make_shared<const Service>(load_models(options), options.limits);
  HttpServer server(service, options.http);
  const int port = server.open();
  const bool local = options.http.host == "127.0.0.1" || options.http.host == "localhost" || options.http.host == "::1";
  if (!local && options.http.token.empty())
    log::warning("--host ", options.http.host, ": anyone who reaches this machine may use the server: give --token-file, and put a proxy with TLS before it");
  log::info("serving ", service->list().front()->name, " on http://", options.http.host, ":", port, "/ (stop with Ctrl+C or SIGTERM)");
  std::thread watcher([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    server.stop();
  });
  server.run();
  pthread_kill(watcher.native_handle(), SIGTERM);  // if the server ended by itself
  watcher.join();
  log::info("stopped");
  return 0;
}

}  // namespace

int serve_main(int argc, char** argv) {
  ServeOptions options;
  CLI::App app{"Serves models over HTTP: embeddings in OpenAI's form, similarity, classification, search and maps of words, and a page at /."};
  app.add_option("--checkpoint", options.checkpoints,
                 "model file, checkpoint folder, run folder, or OpenCLIP checkpoint, or NAME=PATH; give it several times to serve several "
                 "models, of which the first one is the default")
      ->required();
  add_checkpoint_options(app, options.reading);
  app.add_option("--images", options.images,
                 "images that can be searched: a folder, a .csv file, or {name: SOURCE, ...}; they are embedded at the start");
  app.add_option("--embeddings", options.embeddings,
                 "file with image embeddings that tessera-embed --source wrote (--out FILE.safetensors or --sparse FILE), or a folder of "
                 "tessera-index; with --images, which must name the same source, results have images");
  add_default(app, "--device", options.device, "auto, cpu, cuda or cuda:N");
  add_threads(app, options.threads);
  add_precision(app, options.precision);
  add_default(app, "--host", options.http.host, "address to listen on; 0.0.0.0: all addresses of the machine");
  add_default(app, "--port", options.http.port, "port; 0: a free one, which the log names")->check(CLI::Range(0, 65535));
  app.add_option("--token-file", options.token_file, "file with the bearer token that requests must have")->check(CLI::ExistingFile);
  app.add_option("--max-batch", options.max_batch, "most images or texts of a batch (default: 8 on the CPU, 32 on a GPU)")->check(CLI::Range(1, 4096));
  add_default(app, "--max-wait-ms", options.batching.max_wait_ms,
                     "longest time that a batch waits for requests that are being received or decoded")
      ->check(CLI::Range(0.0, 1000.0));
  add_default(app, "--max-queue", options.batching.max_queue, "most images and texts that wait; further requests get status 429")
      ->check(CLI::Range(1, 1'000'000));
  add_default(app, "--max-inputs", options.limits.inputs, "most images or texts of a request")->check(CLI::Range(1, 100'000));
  add_default(app, "--max-body", options.limits.body_bytes, "most bytes of a request")->check(CLI::Range(1'000, 1'000'000'000));
  add_default(app, "--max-text", options.limits.text_bytes, "most bytes of a text")->check(CLI::Range(1, 1'000'000));
  add_default(app, "--max-pixels", options.limits.pixels, "most pixels of an image")->check(CLI::Range(1, 1'000'000'000));
  add_default(app, "--max-connections", options.http.connections, "connections that are served at the same time")
      ->check(CLI::Range(1, 65'536));
  add_default(app, "--body-seconds", options.http.body_seconds, "longest time that a client may take to send a body")
      ->check(positive_number());
  app.add_flag("--quiet", options.quiet, "write no line for each request");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  return run_program("tessera-serve", [&] { return serve(options); });
}

}  // namespace tessera::tools
