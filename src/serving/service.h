#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/evaluation/word_maps.h"
#include "src/serving/gallery.h"
#include "src/serving/model_thread.h"
#include "src/serving/request.h"
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/task.h>

namespace tessera::serving {

/// A model that answers requests.
class ServedModel {
 public:
  /// `name` is the model's name in requests. `context` has the run's loss, the text-conditioned pool and the logit scale.
  /// `precision` is that of DualEncoderEmbedder.
  ServedModel(std::string name, InferenceModel loaded, EvaluationContext context, const Batching& batching,
              at::ScalarType precision = at::kFloat);

  const std::string name;
  const InferenceModel loaded;
  const EvaluationContext context;
  const DualEncoderEmbedder embedder;
  std::unique_ptr<const Gallery> gallery;  // null: there is nothing to search
  mutable ModelThread thread;

  const Preprocessing& preprocessing() const { return embedder.preprocessing(); }
  bool has_texts() const { return embedder.takes_texts(); }
  bool is_sparse() const { return embedder.token_space() > 0; }
  /// The model that compares images and texts through the pool, or null. Only for the model's thread.
  const ConditionedEmbedder* conditioned() const { return conditioned_ ? &*conditioned_ : nullptr; }
  /// The maps of words. They are made when they are first needed. Only for the model's thread.
  const WordMaps& word_maps() const;
  /// Returns the name of a token of a sparse embedding.
  std::string token_name(std::int64_t token) const { return token_names_.name(static_cast<std::int32_t>(token)); }
  /// Returns what the model can do, for /v1/models and the page.
  nlohmann::json describe() const;

 private:
  std::optional<ConditionedEmbedder> conditioned_;
  mutable std::unique_ptr<const WordMaps> word_maps_;
  index::TokenNames token_names_;
};

/// Answers the requests of the HTTP interface (docs/serving.md) without any HTTP. Thread-safe.
class Service {
 public:
  /// `models` has at least one model. The first one answers requests that name none.
  Service(std::vector<std::unique_ptr<ServedModel>> models, const Limits& limits);

  /// Returns the paths that post() answers.
  static std::vector<std::string> paths();
  /// Answers a POST request with JSON. Throws RequestError, Busy, and UserError if the model cannot do what the request asks for.
  std::string post(const std::string& path, std::string_view body) const;
  /// Returns the list of models, as GET /v1/models answers.
  std::string models() const;
  /// Returns an image of a model's gallery as a JPEG whose sides are at most `side` pixels. Throws RequestError if there is no such image.
  std::string image(const std::string& model, std::int64_t item, std::int64_t side) const;
  /// Returns the number of images and texts that wait, over all models.
  std::int64_t waiting() const;
  const std::vector<std::unique_ptr<ServedModel>>& list() const { return models_; }
  const Limits& limits() const { return limits_; }

 private:
  const ServedModel& model(const std::string& name) const;

  std::vector<std::unique_ptr<ServedModel>> models_;
  Limits limits_;
};

}  // namespace tessera::serving
