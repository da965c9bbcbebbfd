#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/evaluation/embedder.h>

namespace tessera::serving {

/// Thrown if too much work waits (HTTP status 429).
class Busy : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How requests are joined to batches.
struct Batching {
  std::int64_t max_batch = 32;     // most images or texts of a batch
  double max_wait_ms = 2;          // longest time that a batch waits for requests that are being prepared
  std::int64_t max_queue = 1024;   // most images and texts that may wait
  int threads = 1;                 // threads of the operators
};

/// Runs a model on one thread. Images and texts of several requests are joined to batches; the images or texts of one request stay in one
/// batch if they fit into one. A batch waits for further requests only while some are being prepared (Preparing), so a lone request never
/// waits. All functions are thread-safe.
class ModelThread {
 public:
  ModelThread(const Embedder& embedder, Batching batching);
  /// Finishes the work that waits.
  ~ModelThread();
  ModelThread(const ModelThread&) = delete;
  ModelThread& operator=(const ModelThread&) = delete;

  /// Exists while a request is being parsed and its images are being decoded, so that batches wait for the request.
  class Preparing {
   public:
    explicit Preparing(ModelThread& thread) : thread_(thread) { ++thread_.preparing_; }
    ~Preparing() { done(); }
    Preparing(const Preparing&) = delete;
    Preparing& operator=(const Preparing&) = delete;
    void done();

   private:
    ModelThread& thread_;
    bool ended_ = false;
  };

  /// Encodes images, uint8 [3, h, w] as preprocess() returns them. Throws Busy if too much work waits. The future holds what
  /// Embedder::encode_images() returns or throws.
  std::future<TowerFeatures> encode_images(std::vector<at::Tensor> images, const ViewNeeds& needs);
  std::future<TowerFeatures> encode_texts(std::vector<std::string> texts, const ViewNeeds& needs);
  /// Calls `work` on the thread, and waits for its end. Throws Busy, and what `work` throws.
  void run(const std::function<void()>& work);

  std::int64_t waiting() const;
  /// Called on the model's thread after each batch with the number of its images or texts, and whether they were images.
  std::function<void(std::int64_t items, bool images)> on_batch;

 private:
  struct Job {
    std::vector<at::Tensor> images;
    std::vector<std::string> texts;
    ViewNeeds needs;
    std::function<void()> work;
    std::promise<TowerFeatures> result;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

    std::int64_t items() const { return std::max<std::int64_t>(1, std::ssize(images) + std::ssize(texts)); }
    bool joins(const Job& other) const;
  };

  std::future<TowerFeatures> add(Job job);
  void loop();
  std::vector<Job> next_batch();
  void encode(std::vector<Job>& batch) const;
  TowerFeatures encode_images_at_once(const std::vector<at::Tensor>& images, const ViewNeeds& needs) const;

  const Embedder& embedder_;
  const Batching batching_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::int64_t waiting_ = 0;  // images and texts of `jobs_`
  std::atomic<std::int64_t> preparing_ = 0;
  bool ending_ = false;
  std::thread thread_;  // last, because it uses all other members
};

}  // namespace tessera::serving
