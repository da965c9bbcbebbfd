#include "src/serving/model_thread.h"

#include <ATen/Parallel.h>

#include "src/data/image/patches.h"
#include <tessera/base/error.h>

namespace tessera::serving {

void ModelThread::Preparing::done() {
  if (std::exchange(ended_, true)) return;
  {
    const std::lock_guard lock(thread_.mutex_);
    --thread_.preparing_;
  }
  thread_.changed_.notify_all();
}

bool ModelThread::Job::joins(const Job& other) const {
  return !work && !other.work && images.empty() == other.images.empty() && needs == other.needs;
}

ModelThread::ModelThread(const Embedder& embedder, Batching batching)
    : embedder_(embedder), batching_(batching), thread_([this] { loop(); }) {}

ModelThread::~ModelThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::future<TowerFeatures> ModelThread::encode_images(std::vector<at::Tensor> images, const ViewNeeds& needs) {
  Job job;
  job.images = std::move(images);
  job.needs = needs;
  return add(std::move(job));
}

std::future<TowerFeatures> ModelThread::encode_texts(std::vector<std::string> texts, const ViewNeeds& needs) {
  Job job;
  job.texts = std::move(texts);
  job.needs = needs;
  return add(std::move(job));
}

void ModelThread::run(const std::function<void()>& work) {
  Job job;
  job.work = work;
  add(std::move(job)).get();
}

std::int64_t ModelThread::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

std::future<TowerFeatures> ModelThread::add(Job job) {
  std::future<TowerFeatures> result = job.result.get_future();
  {
    const std::lock_guard lock(mutex_);
    // A request that alone exceeds the limit is let through if nothing else waits.
    if (waiting_ > 0 && waiting_ + job.items() > batching_.max_queue)
      throw Busy(concat(waiting_, " images and texts wait already: try again in a moment"));
    waiting_ += job.items();
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return result;
}

void ModelThread::loop() {
  at::set_num_threads(batching_.threads);
  for (std::vector<Job> batch = next_batch(); !batch.empty(); batch = next_batch()) {
    try {
      if (batch.front().work) {
        batch.front().work();
        batch.front().result.set_value({});
      } else {
        encode(batch);
      }
    } catch (...) {
      for (Job& job : batch) job.result.set_exception(std::current_exception());
    }
  }
}

std::vector<ModelThread::Job> ModelThread::next_batch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
  if (jobs_.empty()) return {};
  std::vector<Job> batch;
  std::int64_t items = 0;
  const auto take = [&](std::deque<Job>::iterator job) {
    items += job->items();
    waiting_ -= job->items();
    batch.push_back(std::move(*job));
    return jobs_.erase(job);
  };
  take(jobs_.begin());
  const auto until = batch.front().since + std::chrono::duration<double, std::milli>(batching_.max_wait_ms);
  while (!batch.front().work) {
    for (auto job = jobs_.begin(); job != jobs_.end() && items < batching_.max_batch;)
      job = job->joins(batch.front()) && items + job->items() <= batching_.max_batch ? take(job) : std::next(job);
    const bool others_come = preparing_ > 0 && !ending_ && jobs_.empty();
    if (items >= batching_.max_batch || !others_come) break;
    if (changed_.wait_until(lock, until, [&] { return ending_ || !jobs_.empty() || preparing_ == 0; })) continue;
    break;
  }
  return batch;
}

void ModelThread::encode(std::vector<Job>& batch) const {
  std::vector<at::Tensor> images;
  std::vector<std::string> texts;
  for (Job& job : batch) {
    images.insert(images.end(), job.images.begin(), job.images.end());
    texts.insert(texts.end(), job.texts.begin(), job.texts.end());
  }
  const bool of_images = !images.empty();
  const ViewNeeds& needs = batch.front().needs;
  const TowerFeatures features = of_images ? encode_images_at_once(images, needs) : embedder_.encode_texts(texts, needs);
  if (on_batch) on_batch(std::ssize(images) + std::ssize(texts), of_images);
  std::int64_t first = 0;
  for (Job& job : batch) {
    const std::int64_t count = std::ssize(job.images) + std::ssize(job.texts);
    job.result.set_value(map_tensors(features, [&](const at::Tensor& tensor) { return tensor.narrow(0, first, count); }));
    first += count;
  }
}

TowerFeatures ModelThread::encode_images_at_once(const std::vector<at::Tensor>& images, const ViewNeeds& needs) const {
  std::vector<TowerFeatures> parts;
  for (auto begin = images.begin(); begin != images.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(batching_.max_batch, images.end() - begin);
    parts.push_back(embedder_.encode_images(image_batch({begin, end}, embedder_.preprocessing()), needs));
    begin = end;
  }
  return joined(parts);
}

}  // namespace tessera::serving
