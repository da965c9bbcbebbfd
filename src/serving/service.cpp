#include "src/serving/service.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/base/json_numbers.h"
#include "src/base/printable.h"
#include "src/data/image/encode.h"
#include "src/data/image/patches.h"
#include "src/evaluation/embedding_rows.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/patch_scores.h"
#include "src/evaluation/token_space.h"
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>

namespace tessera::serving {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostWords = 64;   // of a text, for which /v1/explain makes maps
constexpr std::int64_t kMostSlots = 16;   // that /v1/explain returns
constexpr std::int64_t kMostTokens = 32;  // of a sparse embedding, that /v1/explain returns
constexpr std::int64_t kMostHits = 1000;

/// Returns a matrix of float32 as JSON.
std::string rows_text(const at::Tensor& matrix) {
  const at::Tensor rows = matrix.to(at::kFloat).contiguous();
  std::string out = "[";
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    if (i > 0) out += ',';
    append_numbers(out, {rows.const_data_ptr<float>() + i * rows.size(1), static_cast<std::size_t>(rows.size(1))});
  }
  return out + ']';
}

std::string json_text(const std::string& text) { return dump_utf8(json(text)); }

std::vector<float> floats(const at::Tensor& values) { return to_vector<float>(values.to(at::kFloat)); }

/// Returns numbers as JSON with four digits, which is enough for a map or a bar.
json rounded(const at::Tensor& values) {
  auto out = json::array();
  for (const float value : floats(values)) out.push_back(std::round(static_cast<double>(value) * 1e4) / 1e4);
  return out;
}

void check_finite(const at::Tensor& values) {
  if (!at::isfinite(values).all().item<bool>()) user_error("an embedding is not finite: the model's weights are damaged");
}

std::vector<DecodedImage> decoded(const std::vector<std::string>& files, const ServedModel& model, const Limits& limits, const std::string& field) {
  std::vector<DecodedImage> out;
  for (const std::string& file : files) out.push_back(decode_input(file, model.preprocessing(), limits, field));
  return out;
}

std::vector<at::Tensor> pixels_of(const std::vector<DecodedImage>& images) {
  std::vector<at::Tensor> out;
  for (const DecodedImage& image : images) out.push_back(image.pixels);
  return out;
}

void require_texts(const ServedModel& model, const std::string& field) {
  if (!model.has_texts()) bad_request(field, "the model ", model.name, " has no text tower");
}

/// Returns the sparse form of an embedding: its tokens with a weight above 0, the greatest weight first.
json sparse_form(const ServedModel& model, const at::Tensor& embedding, std::int64_t top) {
  const at::Tensor row = embedding.to(at::kFloat);
  const std::int64_t active = at::count_nonzero(row).item<std::int64_t>();
  const at::Tensor tokens = metrics::best_first(row.unsqueeze(0), top > 0 ? std::min(top, active) : active)[0];
  json names = json::array();
  for (const std::int64_t token : to_vector<std::int64_t>(tokens)) names.push_back(model.token_name(token));
  return {{"indices", to_vector<std::int64_t>(tokens)}, {"values", floats(row.index_select(0, tokens))}, {"tokens", names}};
}

/// What a request of /v1/embeddings asks for.
struct EmbeddingForm {
  std::string output, encoding;
  std::int64_t dimensions, top;
};

/// Appends an embedding as JSON. `row` is its number in `features`.
void append_embedding(std::string& out, const ServedModel& model, const TowerFeatures& features, std::int64_t row, const EmbeddingForm& form) {
  if (form.output == "sparse") {
    out += dump_utf8(sparse_form(model, unit_embeddings(features.global[row]), form.top));
    return;
  }
  if (form.output == "slots") {
    out += rows_text(unit_embeddings(features.slots[row]));
    return;
  }
  at::Tensor embedding = features.global[row];
  if (form.dimensions > 0) embedding = embedding.narrow(0, 0, form.dimensions);
  embedding = unit_embeddings(embedding).to(at::kFloat).contiguous();
  const float* values = embedding.const_data_ptr<float>();
  if (form.encoding == "float")
    append_numbers(out, {values, static_cast<std::size_t>(embedding.numel())});
  else
    out += '"' + base64_encode({reinterpret_cast<const char*>(values), static_cast<std::size_t>(embedding.numel()) * sizeof(float)}) + '"';
}

EmbeddingForm form_of(const Body& body, const ServedModel& model) {
  EmbeddingForm form;
  form.output = body.choice("output", {"dense", "sparse", "slots"});
  form.encoding = body.choice("encoding_format", {"float", "base64"});
  form.dimensions = body.number("dimensions", 0, 1, model.loaded.model->embed_dim());
  form.top = body.number("top", 0, 1, model.loaded.model->embed_dim());
  if (form.output == "sparse" && !model.is_sparse())
    bad_request("output", "output: the model ", model.name, " has no sparse embeddings; those of STAIR are sparse");
  if (form.output != "dense" && (form.dimensions > 0 || form.encoding == "base64"))
    bad_request("output", "output: dimensions and base64 are for dense embeddings");
  if (form.top > 0 && form.output != "sparse") bad_request("top", "top: is for sparse embeddings");
  return form;
}

using Waiting = std::future<TowerFeatures>;

std::string embeddings(const ServedModel& model, const Body& body, const Limits& limits, ModelThread::Preparing& preparing) {
  const EmbeddingForm form = form_of(body, model);
  std::vector<std::string> texts;
  std::vector<at::Tensor> images;
  std::vector<bool> of_image;
  for (const Body::Input& input : body.inputs("input", body.choice("modality", {"text", "image"}) == "image")) {
    of_image.push_back(std::holds_alternative<Body::ImageFile>(input));
    if (of_image.back())
      images.push_back(decode_input(std::get<Body::ImageFile>(input).bytes, model.preprocessing(), limits, "input").pixels);
    else
      texts.push_back(std::get<Body::Text>(input).text);
  }
  if (!texts.empty()) require_texts(model, "input");
  const bool slots = form.output == "slots";
  Waiting of_images, of_texts;
  if (!images.empty()) of_images = model.thread.encode_images(std::move(images), {.slots = slots});
  if (!texts.empty()) of_texts = model.thread.encode_texts(std::move(texts), {.slots = slots, .input_ids = true});
  preparing.done();
  const TowerFeatures image_features = of_images.valid() ? of_images.get() : TowerFeatures{};
  const TowerFeatures text_features = of_texts.valid() ? of_texts.get() : TowerFeatures{};
  for (const TowerFeatures* features : {&image_features, &text_features})
    if (features->global.defined()) check_finite(features->global);
  std::string out = R"({"object":"list","data":[)";
  std::int64_t image = 0, text = 0;
  for (std::size_t i = 0; i < of_image.size(); ++i) {
    const TowerFeatures& features = of_image[i] ? image_features : text_features;
    if (slots && !features.slots.defined()) bad_request("output", "output: the model ", model.name, " has no slots; those of SPARO have");
    out += concat(i == 0 ? "" : ",", R"({"object":"embedding","index":)", i, R"(,"embedding":)");
    append_embedding(out, model, features, of_image[i] ? image++ : text++, form);
    out += '}';
  }
  const std::int64_t tokens = text_features.input.mask.defined() ? text_features.input.mask.sum().item<std::int64_t>() : 0;
  return out + concat(R"(],"model":)", json_text(model.name), R"(,"usage":{"prompt_tokens":)", tokens, R"(,"total_tokens":)", tokens, "}}");
}

const Embedder& embedder_of(const ServedModel& model, bool conditioned) {
  return conditioned ? *model.conditioned() : static_cast<const Embedder&>(model.embedder);
}

/// Compares images with texts. Only for the model's thread.
at::Tensor compare(const ServedModel& model, const std::vector<at::Tensor>& images, bool conditioned, const std::vector<std::string>& texts) {
  const Embedder& embedder = embedder_of(model, conditioned);
  const TowerFeatures features = embedder.encode_images(image_batch(images, model.preprocessing()), ViewNeeds{});
  const at::Tensor out = embedder.similarity(features, embedder.encode_texts(texts, {}));
  check_finite(out);
  return out;
}

bool wants_pool(const ServedModel& model, const Body& body) {
  const bool conditioned = body.choice("similarity", {"global", "conditioned"}) == "conditioned";
  if (conditioned && model.conditioned() == nullptr)
    bad_request("similarity", "similarity: the model ", model.name, " has no text-conditioned pool; those of FLAIR have");
  return conditioned;
}

std::string similarity(const ServedModel& model, const Body& body, const Limits& limits, ModelThread::Preparing& preparing) {
  require_texts(model, "texts");
  const bool conditioned = wants_pool(model, body);
  const std::vector<std::string> texts = body.texts("texts");
  const std::vector<at::Tensor> images = pixels_of(decoded(body.images("images"), model, limits, "images"));
  preparing.done();
  at::Tensor scores;
  model.thread.run([&] { scores = compare(model, images, conditioned, texts); });
  return concat(R"({"similarity":)", rows_text(scores), R"(,"probabilities":)", rows_text((scores * model.context.logit_scale).softmax(1)),
                R"(,"model":)", json_text(model.name), "}");
}

/// Returns the patches' classes of one image, whose features are those that `scores` need: {"rows", "columns", "part", "classes": [the index
/// of each patch's class]}.
json segmentation(const Embedder& embedder, const PatchScores& scores, const DecodedImage& image, TowerFeatures features) {
  const config::Size grid = grid_of_image(embedder, features);
  const at::Tensor patches = scores.of(features, grid)[0];
  return {{"rows", grid.height}, {"columns", grid.width}, {"part", image.part}, {"classes", to_vector<std::int64_t>(patches.argmax(1))}};
}

std::string classify(const ServedModel& model, const Body& body, const Limits& limits, ModelThread::Preparing& preparing) {
  require_texts(model, "classes");
  const bool conditioned = wants_pool(model, body), segment = body.flag("segmentation");
  const std::vector<std::string> classes = body.texts("classes");
  TextList templates = {kUsualPrompt};
  if (body.has("templates")) templates.items = body.texts("templates");
  if (const auto problem = check_templates(templates)) bad_request("templates", problem->key, ": ", problem->text);
  if (std::ssize(classes) * std::ssize(templates.items) > 16 * limits.inputs)
    bad_request("templates", "templates: ", classes.size(), " classes with ", templates.items.size(), " templates are more than ",
                16 * limits.inputs, " texts");
  const std::vector<DecodedImage> images = decoded(body.images("images"), model, limits, "images");
  preparing.done();
  at::Tensor scores;
  auto results = json::array();
  model.thread.run([&] {
    const Embedder& embedder = embedder_of(model, conditioned);
    const TowerFeatures names = embed_classes(embedder, classes, templates);
    const PatchScores patches = !segment      ? PatchScores{}
                                : conditioned ? conditioned_patches(*model.conditioned(), names, /*attention=*/false)
                                              : cosines_of_patches(names.global, LastBlock::plain);
    const TowerFeatures features = embedder.encode_images(image_batch(pixels_of(images), model.preprocessing()), patches.needs);
    scores = embedder.similarity(features, names);
    check_finite(scores);
    for (std::int64_t i = 0; i < std::ssize(images); ++i) {
      const TowerFeatures own = map_tensors(features, [&](const at::Tensor& tensor) { return tensor.narrow(0, i, 1); });
      results.push_back(segment ? json{{"segmentation", segmentation(embedder, patches, images[static_cast<std::size_t>(i)], own)}}
                                : json::object());
    }
  });
  const at::Tensor probabilities = (scores * model.context.logit_scale).softmax(1), order = metrics::best_first(scores, std::ssize(classes));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    for (const std::int64_t c : to_vector<std::int64_t>(order[row]))
      results[i]["classes"].push_back({{"name", classes[static_cast<std::size_t>(c)]},
                                       {"index", c},
                                       {"probability", probabilities[row][c].item<double>()},
                                       {"similarity", scores[row][c].item<double>()}});
  }
  return dump_utf8(json{{"results", results}, {"model", model.name}});
}

/// Orders the best hits anew by the text-conditioned similarity of their images with the text (FLAIR).
void rerank(const ServedModel& model, const std::string& text, std::int64_t count, std::vector<Gallery::Hit>& hits) {
  std::vector<at::Tensor> images;
  for (const Gallery::Hit& hit : hits) {
    if (std::ssize(images) == count) break;
    images.push_back(to_tensor(preprocess(model.gallery->image(hit.item, model.preprocessing()), model.preprocessing())));
  }
  at::Tensor scores;
  model.thread.run([&] { scores = compare(model, images, /*conditioned=*/true, {text}); });
  for (std::int64_t i = 0; i < std::ssize(images); ++i) hits[static_cast<std::size_t>(i)].score = scores[i][0].item<double>();
  std::stable_sort(hits.begin(), hits.begin() + std::ssize(images), [](const auto& a, const auto& b) { return a.score > b.score; });
}

std::string search(const ServedModel& model, const Body& body, const Limits& limits, ModelThread::Preparing& preparing) {
  if (model.gallery == nullptr)
    throw RequestError(404, "model", concat("the model ", model.name, " has nothing to search: start the server with --images or --embeddings"));
  if (body.has("text") == body.has("image")) bad_request("text", "give one of text and image");
  const std::int64_t k = body.number("k", 10, 1, kMostHits), candidates = body.number("rerank", 0, 1, kMostHits);
  if (candidates > 0 && (!body.has("text") || model.conditioned() == nullptr || !model.gallery->has_images()))
    bad_request("rerank", "rerank: needs a text, a model with a text-conditioned pool (FLAIR), and --images");
  const std::string text = body.text("text", "");
  Waiting waiting;
  if (body.has("text")) {
    require_texts(model, "text");
    waiting = model.thread.encode_texts({text}, {});
  } else {
    waiting = model.thread.encode_images(pixels_of(decoded(body.images("image"), model, limits, "image")), {});
  }
  preparing.done();
  const at::Tensor query = waiting.get().global[0];
  check_finite(query);
  std::vector<Gallery::Hit> hits = model.gallery->search(query, std::max(k, candidates));
  if (candidates > 0) rerank(model, text, candidates, hits);
  auto results = json::array();
  for (const Gallery::Hit& hit : hits) {
    if (std::ssize(results) == k) break;
    results.push_back({{"index", hit.item}, {"key", model.gallery->key(hit.item)}, {"score", hit.score}});
  }
  return dump_utf8(json{{"results", results}, {"model", model.name}, {"has_images", model.gallery->has_images()}});
}

/// Returns the slots in which image and text agree most, with what they attend to. Only for the model's thread.
json slots_of(const ServedModel& model, const TowerFeatures& images, const TowerFeatures& texts) {
  if (!images.slots.defined() || !images.attention.defined() || !texts.slots.defined() || !texts.attention.defined()) return nullptr;
  check_same_slots("explain", images.slots, texts.slots);
  const std::vector<std::string> tokens = tokens_of(model.embedder, texts.input, 0);
  const at::Tensor cosines = (metrics::unit_rows(images.slots) * metrics::unit_rows(texts.slots)).sum(2);
  auto out = json::array();
  for (const std::int64_t slot : to_vector<std::int64_t>(metrics::best_first(cosines, kMostSlots)[0]))
    out.push_back({{"slot", slot},
                   {"cosine", cosines[0][slot].item<double>()},
                   {"weights", rounded(images.attention[0][slot])},
                   {"tokens", tokens},
                   {"token_weights", rounded(texts.attention[0][slot].narrow(0, 0, std::ssize(tokens)))}});
  return out;
}

/// Adds the maps of the words of a text, and what they mean. Only for the model's thread. Throws UserError if the model's patches cannot be
/// compared with words.
void add_word_maps(const ServedModel& model, const DecodedImage& image, const std::string& text, json& out) {
  const WordMaps& maps = model.word_maps();
  const ImageWords words = maps.of(maps.embedder().encode_images(image_batch({image.pixels}, model.preprocessing()), maps.needs()), text, kMostWords);
  out.update({{"rows", words.grid.height}, {"columns", words.grid.width}, {"part", image.part}, {"rule", maps.rule()}, {"note", maps.note()}});
  for (const WordMap& map : words.maps) {
    const json span = map.word.span[0] < 0 ? json(nullptr) : json(map.word.span);
    out["words"].push_back({{"word", map.word.text}, {"span", span}, {"weights", map.patches}});
  }
}

std::string explain(const ServedModel& model, const Body& body, const Limits& limits, ModelThread::Preparing& preparing) {
  require_texts(model, "text");
  body.at("text");
  const std::string text = body.text("text", "");
  const std::vector<DecodedImage> given = decoded(body.images("image"), model, limits, "image");
  if (given.size() != 1) bad_request("image", "image: expected one image");
  preparing.done();
  json out = {{"model", model.name}, {"text", text}, {"words", json::array()}};
  model.thread.run([&] {
    add_word_maps(model, given[0], text, out);
    const ViewNeeds needs{.slots = true, .attention = true, .input_ids = true};
    const TowerFeatures image = model.embedder.encode_images(image_batch(pixels_of(given), model.preprocessing()), needs);
    const TowerFeatures caption = model.embedder.encode_texts({text}, needs);
    out["similarity"] = model.embedder.similarity(image, caption)[0][0].item<double>();
    if (const json slots = slots_of(model, image, caption); !slots.is_null()) out["slots"] = slots;
    if (!model.is_sparse()) return;
    out["image_tokens"] = sparse_form(model, image.global[0], kMostTokens);
    out["text_tokens"] = sparse_form(model, caption.global[0], kMostTokens);
  });
  return dump_utf8(out);
}

/// A path with the fields of its body.
struct Endpoint {
  std::vector<std::string> fields;
  std::string (*answer)(const ServedModel&, const Body&, const Limits&, ModelThread::Preparing&);
};

const std::map<std::string, Endpoint>& endpoints() {
  static const std::map<std::string, Endpoint> list = {
      {"/v1/embeddings", {{"input", "model", "encoding_format", "dimensions", "user", "modality", "output", "top"}, embeddings}},
      {"/v1/similarity", {{"images", "texts", "model", "similarity"}, similarity}},
      {"/v1/classify", {{"images", "classes", "templates", "model", "similarity", "segmentation"}, classify}},
      {"/v1/search", {{"text", "image", "k", "rerank", "model"}, search}},
      {"/v1/explain", {{"image", "text", "model"}, explain}}};
  return list;
}

}  // namespace

ServedModel::ServedModel(std::string own_name, InferenceModel model, EvaluationContext own_context, const Batching& batching,
                         at::ScalarType precision)
    : name(std::move(own_name)),
      loaded(std::move(model)),
      context(std::move(own_context)),
      embedder(loaded.model, loaded.tokenizer, batching.max_batch, precision),
      thread(embedder, batching) {
  if (context.pool) conditioned_.emplace(embedder, context.pool, std::nullopt, "similarity: conditioned");
  if (is_sparse()) token_names_ = token_names(embedder, name);
}

const WordMaps& ServedModel::word_maps() const {
  if (!word_maps_) word_maps_ = std::make_unique<const WordMaps>(embedder, context);
  return *word_maps_;
}

json ServedModel::describe() const {
  return {{"id", name},
          {"object", "model"},
          {"owned_by", "tessera"},
          {"embed_dim", loaded.model->embed_dim()},
          {"texts", has_texts()},
          {"sparse", is_sparse()},
          {"conditioned", conditioned() != nullptr},
          {"exif_rotation", preprocessing().exif_rotation},
          {"has_images", gallery != nullptr && gallery->has_images()},
          {"images", gallery ? gallery->size() : 0}};
}

Service::Service(std::vector<std::unique_ptr<ServedModel>> models, const Limits& limits) : models_(std::move(models)), limits_(limits) {}

std::vector<std::string> Service::paths() {
  std::vector<std::string> out;
  for (const auto& [path, endpoint] : endpoints()) out.push_back(path);
  return out;
}

std::string Service::post(const std::string& path, std::string_view body) const {
  const Endpoint& endpoint = endpoints().at(path);
  const Body fields(body, endpoint.fields, limits_);
  const ServedModel& chosen = model(fields.text("model", models_.front()->name));
  // The request counts as one that is being prepared until its work is queued.
  ModelThread::Preparing preparing(chosen.thread);
  return endpoint.answer(chosen, fields, limits_, preparing);
}

std::string Service::models() const {
  auto list = json::array();
  for (const auto& served : models_) list.push_back(served->describe());
  return dump_utf8(json{{"object", "list"}, {"data", list}});
}

std::string Service::image(const std::string& name, std::int64_t item, std::int64_t side) const {
  const ServedModel& served = model(name);
  if (served.gallery == nullptr || !served.gallery->has_images() || item < 0 || item >= served.gallery->size())
    throw RequestError(404, "index", "there is no such image");
  try {
    const Image image = served.gallery->image(item, served.preprocessing());
    const double scale = std::min(1.0, static_cast<double>(side) / static_cast<double>(std::max(image.height, image.width)));
    const auto scaled = [&](std::int64_t length) { return std::max<std::int64_t>(1, std::llround(scale * static_cast<double>(length))); };
    return encode_jpeg(resize(image, scaled(image.height), scaled(image.width), "bicubic"), 90);
  } catch (const SampleError& error) {
    throw RequestError(404, "index", concat("the image can no longer be read: ", error.what()));
  }
}

std::int64_t Service::waiting() const {
  std::int64_t sum = 0;
  for (const auto& served : models_) sum += served->thread.waiting();
  return sum;
}

const ServedModel& Service::model(const std::string& name) const {
  for (const auto& served : models_)
    if (served->name == name) return *served;
  std::vector<std::string> names;
  for (const auto& served : models_) names.push_back(served->name);
  throw RequestError(404, "model", concat("there is no model ", printable(name, 60), suggestion(name, names)));
}

}  // namespace tessera::serving
