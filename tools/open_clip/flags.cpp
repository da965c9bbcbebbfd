#include "tools/open_clip/flags.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/base/host.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>
#include <tessera/config/shipped.h>

namespace tessera::tools::open_clip {
namespace {

constexpr const char* kNoCounterpart = "no counterpart";

/// Returns whether the data named by `name` (train_data or val_data) is a table. With dataset_type auto, the file ending decides.
bool is_csv(const Parameters& p, const std::string& name) {
  const std::string &type = p.text("dataset_type"), &path = p.text(name);
  return type == "csv" || (type == "auto" && (path.ends_with(".csv") || path.ends_with(".tsv")));
}

bool is_timm(const Parameters& p) {
  return p.text("opt").starts_with("timm/");
}

/// Returns whether the model is of this kind, which means that its name contains `kind`. open_clip_train recognizes kinds of models in the
/// same way.
bool model_is(const Parameters& p, const char* kind) {
  std::string model = p.text("model");
  std::transform(model.begin(), model.end(), model.begin(), [](unsigned char c) { return std::tolower(c); });
  return model.find(kind) != std::string::npos;
}

/// Returns a function that returns whether the parameter is given.
std::function<bool(const Parameters&)> is_given(const char* name) {
  return [name](const Parameters& p) { return p.has(name); };
}

std::int64_t divided_up(std::int64_t number, std::int64_t by) {
  return (number + by - 1) / by;
}

// ---- data

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find("::", begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return out;
}

std::string shards(const std::string& path) {
  return "{name: webdataset, path: " + path + ", caption_keys: [txt], json_captions: []}";
}

/// Returns the source {name: mixture, ...} that mixes the shards at `paths`, with `factors` as their weights.
std::string mixture(const std::vector<std::string>& paths, const std::vector<std::string>& factors) {
  if (factors.size() != paths.size())
    user_error("train_data_upsampling_factors has ", factors.size(), " numbers for the ", paths.size(), " parts of train_data");
  std::string out;
  for (std::size_t i = 0; i < paths.size(); ++i)
    out += concat(i == 0 ? "" : ", ", "{label: part_", i + 1, ", weight: ", factors[i], ", source: ", shards(yaml_text(paths[i])), "}");
  return "{name: mixture, mode: weighted, sources: [" + out + "]}";
}

std::string source_of(const Parameters& p, const std::string& name) {
  if (is_csv(p, name)) return "{name: csv, path: " + yaml_text(p.text(name)) + "}";
  const std::vector<std::string> paths = parts_of(p.text(name));
  if (paths.size() == 1) return shards(yaml_text(paths[0]));
  const bool weighted = name == "train_data" && p.has("train_data_upsampling_factors");
  if (weighted) return mixture(paths, parts_of(p.text("train_data_upsampling_factors")));
  std::string list;
  for (const std::string& path : paths) list += (list.empty() ? "" : ", ") + yaml_text(path);
  return shards("[" + list + "]");
}

Settings training_data(const Parameters& p) {
  if (p.has("train_data")) return {"data.train=" + source_of(p, "train_data")};
  if (dataset_type(p) != "synthetic" || !p.has("train_num_samples")) return {};
  return {concat("data.train={name: shapes, size: ", p.text("train_num_samples"), "}")};
}

/// Returns the settings `key`=`value` for the training and validation data, but only where the data are a CSV or TSV table.
Settings of_tables(const Parameters& p, const std::string& key, const std::string& value) {
  Settings out;
  if (dataset_type(p) == "csv") out.push_back("data.train." + key + "=" + value);
  if (p.has("val_data") && is_csv(p, "val_data")) out.push_back("data.validation." + key + "=" + value);
  return out;
}

Settings csv_separator(const Parameters& p) {
  const std::string& mark = p.text("csv_separator");
  const bool tab = mark == "\t" || mark == "\\t";
  return of_tables(p, "separator", tab ? "tab" : mark == "," ? "comma" : yaml_text(mark));
}

// ---- evaluation

std::string zero_shot_task(const std::string& folder) {
  const std::string shipped = config::shipped_folder();
  return concat("{name: zero_shot, source: {name: image_folder, path: ", yaml_text(folder), "}, classes: ", yaml_text(shipped + "/classes/imagenet.txt"),
                ", templates: ", yaml_text(shipped + "/templates/openai_imagenet.txt"), "}");
}

Settings tasks(const Parameters& p) {
  std::vector<std::string> list;
  if (p.has("val_data")) list = {"{name: retrieval}", "{name: validation_loss}"};
  for (const char* set : {"imagenet_val", "imagenet_v2"})
    if (p.has(set)) list.push_back(zero_shot_task(p.text(set)));
  std::string out;
  for (const std::string& task : list) out += (out.empty() ? "" : ", ") + task;
  return list.empty() ? Settings() : Settings{"evaluation.tasks=[" + out + "]"};
}

Settings validation_data(const Parameters& p) {
  if (!p.has("val_data")) return {};
  Settings out = {"data.validation=" + source_of(p, "val_data")};
  for (std::string& setting : tasks(p)) out.push_back(std::move(setting));
  return out;
}

Settings evaluation_every(const Parameters& p, const char* epochs) {
  const std::int64_t steps = steps_per_epoch(p);
  return steps == 0 ? Settings() : Settings{concat("evaluation.every_steps=", steps * p.whole(epochs))};
}

// ---- length and schedule

std::int64_t run_steps(const Parameters& p) {
  return steps_per_epoch(p) * p.whole("epochs");
}

Settings length(const Parameters& p) {
  const std::int64_t steps = run_steps(p);
  return {steps > 0 ? concat("training.steps=", steps) : concat("training.epochs=", p.text("epochs"))};
}

bool warms_up_longer_than_it_runs(const Parameters& p) {
  return run_steps(p) > 0 && p.whole("warmup") > run_steps(p) && !p.has("skip_scheduler");
}

Settings warmup(const Parameters& p) {
  if (p.has("skip_scheduler")) return {};
  return {concat("schedule.warmup_steps=", warms_up_longer_than_it_runs(p) ? run_steps(p) : p.whole("warmup"))};
}

/// Returns the setting of the learning rate. If the warm-up is longer than the run, this is the rate that the warm-up reaches at the run's
/// end.
Settings learning_rate(const Parameters& p) {
  const std::string rate = p.has("lr") ? p.text("lr") : "5e-4";
  if (!warms_up_longer_than_it_runs(p)) return {"optimizer.lr=" + rate};
  const double reached = (p.has("lr") ? p.number("lr") : 5e-4) * static_cast<double>(run_steps(p)) / static_cast<double>(p.whole("warmup"));
  return {"optimizer.lr=" + nlohmann::json(reached).dump()};
}

Settings schedule(const Parameters& p) {
  const std::string& name = p.text("lr_scheduler");
  if (name != "cosine" && name != "const" && name != "const-cooldown")
    user_error("lr_scheduler is ", name, ": open_clip_train has cosine, const and const-cooldown");
  return {concat("schedule.schedule=", name == "cosine" && !p.has("skip_scheduler") ? "cosine" : "constant")};
}

bool cools_down(const Parameters& p) {
  return p.text("lr_scheduler") == "const-cooldown" && p.has("epochs_cooldown") && !p.has("skip_scheduler");
}

Settings cooldown(const Parameters& p) {
  if (!cools_down(p)) return {};
  return {"schedule.cooldown_share=" + nlohmann::json(p.number("epochs_cooldown") / p.number("epochs")).dump()};
}

Settings if_cooling_down(const Parameters& p, const char* name, const char* key) {
  return cools_down(p) ? Settings{concat(key, "=", p.text(name))} : Settings();
}

Settings checkpoints(const Parameters& p) {
  const std::int64_t every = steps_per_epoch(p) * std::max<std::int64_t>(0, p.whole("save_frequency"));
  if (p.whole("save_frequency") <= 0) return {"checkpoint.every_steps=0"};
  if (every == 0) return {};
  Settings out = {concat("checkpoint.every_steps=", every)};
  if (!p.has("delete_previous_checkpoint")) out.push_back(concat("checkpoint.keep_every=", every));
  return out;
}

// ---- optimizer

Settings optimizer(const Parameters& p) {
  const std::string name = is_timm(p) ? p.text("opt").substr(5) : p.text("opt");
  if (name == "lamb" || name == "lion") return {"optimizer=" + name};
  if (name == "sgd") return {"optimizer=sgd", "optimizer.nesterov=true"};
  if (name == "momentum") return {"optimizer=sgd"};
  return {"optimizer=adamw"};
}

bool is_another_optimizer(const Parameters& p) {
  static constexpr std::array<const char*, 6> known = {"adamw", "timm/adamw", "timm/lamb", "timm/lion", "timm/sgd", "timm/momentum"};
  return !contains(known, p.text("opt"));
}

bool has_moments(const Parameters& p) {
  return optimizer(p).front() != "optimizer=sgd";
}

Settings betas(const Parameters& p) {
  if (!has_moments(p)) return {};
  const char* second = p.text("opt") == "timm/lion" ? "0.99" : !is_timm(p) && model_is(p, "vit") ? "0.98" : "0.999";
  return {concat("optimizer.betas=[", p.has("beta1") ? p.text("beta1") : "0.9", ", ", p.has("beta2") ? p.text("beta2") : second, "]")};
}

Settings epsilon(const Parameters& p) {
  if (!has_moments(p) || p.text("opt") == "timm/lion" || (p.text("opt") == "timm/lamb" && !p.has("eps"))) return {};
  return {"optimizer.eps=" + (p.has("eps") ? p.text("eps") : !is_timm(p) && model_is(p, "vit") ? "1e-6" : "1e-8")};
}

Settings weight_decay(const Parameters& p) {
  Settings out = {"optimizer.weight_decay=" + p.text("wd")};
  if (!is_timm(p)) out.push_back("optimizer.no_decay=[bn, ln, bias, logit_scale]");
  return out;
}

Settings momentum(const Parameters& p) {
  return p.has("momentum") && !has_moments(p) ? Settings{"optimizer.momentum=" + p.text("momentum")} : Settings();
}

// ---- arithmetic and batches

Settings precision(const Parameters& p) {
  const std::string& name = p.text("precision");
  const bool bf16 = name.find("bf") != std::string::npos;
  return {concat("training.precision=", name == "fp32" ? "float32" : bf16 ? "bf16" : "fp16")};
}

Settings device(const Parameters& p) {
  if (p.text("device").starts_with("cpu")) return {"training.device=cpu"};
  return {"training.tf32=true"};
}

Settings batch(const Parameters& p) {
  return {concat("data.loader.batch_size=", p.whole("batch_size") * p.whole("accum_freq"))};
}

Settings parts_of_batch(const Parameters& p) {
  if (p.whole("accum_freq") <= 1) return {};
  return {batch(p).front(), "training.micro_batch=" + p.text("batch_size")};
}

Settings threads(const Parameters& p) {
  const std::int64_t number = std::max<std::int64_t>(1, p.whole("workers"));
  Settings out = {concat("data.loader.threads=", number)};
  if (!tasks(p).empty()) out.push_back(concat("evaluation.threads=", number));
  return out;
}

// ---- images

/// Expands [x] to [x, x, x], because one number applies to all channels.
Settings of_channels(const Parameters& p, const char* name, const char* key) {
  if (!p.has(name)) return {};
  const config::Node list = config::parse_yaml(p.yaml(name), name);
  if (!list.is_sequence() || list.items().size() != 1) return {concat(key, "=", p.yaml(name))};
  const std::string& value = list.items()[0].text();
  return {concat(key, "=[", value, ", ", value, ", ", value, "]")};
}

Settings image_size(const Parameters& p) {
  if (!p.has("force_image_size")) return {};
  const config::Node size = config::parse_yaml(p.yaml("force_image_size"), "force_image_size");
  const bool square = size.is_sequence() && size.items().size() == 1;
  return {"model.preprocessing.image_size=" + (square ? size.items()[0].text() : p.yaml("force_image_size"))};
}

std::string make_json(const config::Node& node) {
  return config::to_json(node).dump();
}

/// Returns the settings for `color_jitter`. A single number applies to brightness, contrast and saturation; a list has a number for each of
/// these and for hue.
std::string jitter_of(const config::Node& given, double probability) {
  static constexpr std::array<const char*, 4> names = {"brightness", "contrast", "saturation", "hue"};
  const bool list = given.is_sequence();
  std::string out = "{probability: " + nlohmann::json(probability).dump();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool there = list ? i < given.items().size() : i < 3;
    out += concat(", ", names[i], ": ", there ? make_json(list ? given.items()[i] : given) : "0");
  }
  return out + "}";
}

Settings augmentation(const Parameters& p) {
  if (!p.has("aug_cfg")) return {};
  const config::Node given = config::parse_yaml(p.yaml("aug_cfg"), "aug_cfg");
  const auto find = [&](const char* key) {
    const config::Node* found = given.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  };
  const config::Node *timm = find("use_timm"), *jitter = find("color_jitter"), *often = find("color_jitter_prob");
  const bool use_timm = timm != nullptr && timm->text() == "true";
  Settings out;
  const std::string prefix = "data.loader.augmentation.";
  if (const config::Node* scale = find("scale")) out.push_back(prefix + "scale=" + make_json(*scale));
  if (const config::Node* ratio = find("ratio"); ratio != nullptr && use_timm) out.push_back(prefix + "ratio=" + make_json(*ratio));
  if (jitter != nullptr && (use_timm || often != nullptr))
    out.push_back(prefix + "color_jitter=" + jitter_of(*jitter, use_timm ? 1.0 : std::stod(often->text())));
  if (const config::Node* gray = find("gray_scale_prob"); gray != nullptr && !use_timm) out.push_back(prefix + "grayscale=" + make_json(*gray));
  return out;
}

/// Returns whether a part of `aug_cfg` is not supported here, or has no effect.
bool has_odd_augmentation(const Parameters& p) {
  const std::string& given = p.text("aug_cfg");
  const auto names = [&](const char* key) { return given.find(key) != std::string::npos; };
  return names("re_prob") || (!names("use_timm") && (names("ratio") || (names("color_jitter") && !names("color_jitter_prob"))));
}

Settings interpolation(const Parameters& p) {
  if (!p.has("image_interpolation")) return {};
  return {concat("model.preprocessing.interpolation=", p.text("image_interpolation") == "bilinear" ? "bilinear" : "bicubic")};
}

// ---- weights and frozen parameters

Settings sigmoid_loss(const Parameters& p) {
  if (!p.has("siglip")) return {};
  return p.has("pretrained") ? Settings{"objective=siglip", "objective.init_logit_bias=0"} : Settings{"objective=siglip"};
}

bool is_file_of_weights(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".bin") ||
         name.ends_with(".safetensors") || name.ends_with(".npz");
}

Settings pretrained(const Parameters& p) {
  const std::string& name = p.text("pretrained");
  if (!p.has("pretrained") || !is_file_of_weights(name) || (p.has("resume") && p.text("resume") != "latest")) return {};
  return {"start.weights=" + yaml_text(name)};
}

/// OpenCLIP takes --distill-model and --distill-pretrained only together. A tag is written as it is, so that the run asks for its file.
Settings distillation(const Parameters& p) {
  if (!p.has("distill_model") || !p.has("distill_pretrained")) return {};
  return {"objective={name: distill, teacher: " + yaml_text(p.text("distill_pretrained")) + "}"};
}

Settings resume(const Parameters& p) {
  if (!p.has("resume") || p.text("resume") == "latest") return {};
  return {"start.weights=" + yaml_text(p.text("resume"))};
}

/// Freezes the towers that are locked completely.
Settings locked(const Parameters& p) {
  const bool image = p.has("lock_image") && p.whole("lock_image_unlocked_groups") == 0;
  const bool text = p.has("lock_text") && p.whole("lock_text_unlocked_layers") == 0;
  if (!image && !text) return {};
  return {concat("parameters.frozen=[", image ? "image" : "", image && text ? ", " : "", text ? "text" : "", "]")};
}

// ---- log

bool reports_to(const Parameters& p, const char* where) {
  const std::string& list = p.text("report_to");
  return list.find(where) != std::string::npos || list.find("all") != std::string::npos;
}

Settings report(const Parameters& p) {
  Settings out = {concat("log.tensorboard=", reports_to(p, "tensorboard") ? "true" : "false")};
  const std::filesystem::path shipped = std::filesystem::path(config::shipped_folder()).parent_path();
  if (reports_to(p, "wandb"))
    out.push_back("log.command=" + shell_line({"python3", (shipped / "scripts/log_to_wandb.py").string(), p.text("wandb_project_name")}));
  return out;
}

Settings remote_sync(const Parameters& p) {
  if (!p.has("remote_sync") || p.text("remote_sync_protocol") != "s3") return {};
  return {concat("checkpoint.command=aws s3 cp --recursive \"$1\" \"", p.text("remote_sync"), "/$2/checkpoints/$(basename \"$1\")\"")};
}

Settings backend(const Parameters& p) {
  const std::string& name = p.text("dist_backend");
  return name == "nccl" || name == "gloo" ? Settings{"distributed.backend=" + name} : Settings();
}

Settings tower_settings(const char* key, const std::string& value) {
  return {concat("model.image.encoder.", key, "=", value), concat("model.text.encoder.", key, "=", value)};
}

}  // namespace

std::string dataset_type(const Parameters& p) {
  if (p.text("dataset_type") != "auto") return p.text("dataset_type");
  if (is_csv(p, "train_data")) return "csv";
  const bool columns = p.changed("csv_separator") || p.changed("csv_img_key") || p.changed("csv_caption_key");
  return !p.has("train_data") && !p.has("val_data") && columns ? "csv" : "webdataset";
}

std::int64_t steps_per_epoch(const Parameters& p) {
  const std::string type = dataset_type(p);
  const std::string count = type == "csv" ? "csv_rows" : "train_num_samples";
  if (!p.has(count)) return 0;
  const std::int64_t samples = p.whole(count), ranks = p.whole("world_size"), size = p.whole("batch_size"), workers = std::max<std::int64_t>(1, p.whole("workers"));
  // Shards are repeated until all workers have equally many batches; for tables, the last incomplete batch is dropped.
  const std::int64_t batches = type == "webdataset" ? divided_up(divided_up(samples, size * ranks), workers) * workers
                                                    : divided_up(samples, ranks) / size;
  return batches / p.whole("accum_freq");
}

const std::vector<Flag>& flags() {
  using enum Words;
  static const auto nothing = [](const Parameters&) { return Settings(); };
  static const std::vector<Flag> list = {
    {"train_data", one, "None", "", "`data.train`: `{name: webdataset, path: ...}` or `{name: csv, ...}`; `::` becomes a list",
     "Images are read from local files, or streamed by `pipe:` commands. OpenCLIP takes captions from `.txt` members only, as do `caption_keys: [txt]` and `json_captions: []`. Each epoch is a permutation of all samples, not of a buffer", training_data},
    {"train_data_upsampling_factors", one, "None", "", "`data.train`: `{name: mixture, mode: weighted, ...}` with a `weight` for each part",
     "A factor is the exact number of times that each sample appears in an epoch; OpenCLIP draws shards at random with these weights", training_data, is_given("train_data_upsampling_factors")},
    {"val_data", one, "None", "", "`data.validation`, and the tasks `retrieval` and `validation_loss`", "", validation_data},
    {"train_num_samples", one, "None", "", "`training.steps`", "Tessera counts the samples itself; for streams, `stream.samples` is the number. If this flag is given, the run has as many steps as OpenCLIP's", length},
    {"val_num_samples", one, "None", "", "nothing to set", "Tessera counts the samples itself; `max_samples` of a task limits how many it uses", nothing},
    {"dataset_type", one, "auto", "", "`name` of `data.train`: `webdataset`, `csv`", "`synthetic` becomes `shapes`, drawn images with matching captions; OpenCLIP has one black image", nothing, [](const Parameters& p) { return dataset_type(p) == "synthetic"; }},
    {"dataset_resampled", none, "False", "", kNoCounterpart, "Every epoch has each sample once; OpenCLIP draws shards with replacement, so some come twice and others never", nothing},
    {"csv_separator", one, "\t", "", "`separator` of `{name: csv}`", "", csv_separator},
    {"csv_img_key", one, "filepath", "", "`image_keys` of `{name: csv}`, a list", "File names are relative to the table's folder, or to the current folder if the first image exists only there", [](const Parameters& p) { return of_tables(p, "image_keys", "[" + yaml_text(p.text("csv_img_key")) + "]"); }},
    {"csv_caption_key", one, "title", "", "`caption_keys` of `{name: csv}`, a list", "", [](const Parameters& p) { return of_tables(p, "caption_keys", "[" + yaml_text(p.text("csv_caption_key")) + "]"); }},
    {"imagenet_val", one, "None", "", "the task `zero_shot` of `evaluation.tasks`", "", tasks},
    {"imagenet_v2", one, "None", "", "the task `zero_shot` of `evaluation.tasks`", "", tasks},
    {"cache_dir", one, "None", "", kNoCounterpart, "Tessera downloads nothing: weights and tokenizers are files that the settings name", nothing},
    {"logs", one, "./logs/", "", "`run.folder`", "It is the run's own folder, by default `runs/NAME`, not its parent folder", nothing},
    {"log_local", none, "False", "", kNoCounterpart, "Rank 0 writes the log; errors name the rank and its machine", nothing},
    {"name", one, "None", "run.name", "", "By default the run has the name of its YAML file"},
    {"workers", one, "4", "", "`data.loader.threads` (and `evaluation.threads`)", "Threads of one process, not processes; 0 becomes 1. The number affects only speed, while OpenCLIP's order of shards depends on it", threads},
    {"batch_size", one, "64", "", "`data.loader.batch_size`", "Per process, as in OpenCLIP; multiplied by `--accum-freq`", batch},
    {"epochs", one, "32", "", "`training.steps`, or `training.epochs` if the size of the data is not known", "", length},
    {"epochs_cooldown", one, "None", "", "`schedule.cooldown_share`: this number / epochs", "Only with `--lr-scheduler const-cooldown`, as in OpenCLIP", cooldown},
    {"lr", one, "None", "", "`optimizer.lr`", "", learning_rate},
    {"beta1", one, "None", "", "the first of `optimizer.betas`", "", betas},
    {"beta2", one, "None", "", "the second of `optimizer.betas`", "", betas},
    {"eps", one, "None", "", "`optimizer.eps`", "", epsilon},
    {"wd", one, "0.2", "", "`optimizer.weight_decay` with `optimizer.no_decay: [bn, ln, bias, logit_scale]`", "Without `no_decay`, Tessera also exempts position embeddings and class tokens. Parameters with fewer than two dimensions never decay, as in OpenCLIP; timm's class token has three dimensions there and one here", weight_decay},
    {"momentum", one, "None", "", "`optimizer.momentum` with `--opt timm/sgd`", "", momentum, [](const Parameters& p) { return p.has("momentum") && has_moments(p); }},
    {"warmup", one, "10000", "", "`schedule.warmup_steps`", "A warm-up longer than the run is cut to the run's length, and the learning rate to the value that it would have reached", warmup, warms_up_longer_than_it_runs},
    {"opt", one, "adamw", "", "`optimizer`: `adamw`, `lamb` (`timm/lamb`), `lion` (`timm/lion`), `sgd` (`timm/sgd`, `timm/momentum`)", "timm's other optimizers have no counterpart; `adamw` replaces them", optimizer, is_another_optimizer},
    {"use_bn_sync", none, "False", "", kNoCounterpart, "Batch norms use the statistics of each process's own batch, as OpenCLIP does without this flag", nothing},
    {"skip_scheduler", none, "False", "", "`schedule.schedule: constant` without warm-up", "", [](const Parameters& p) { return p.has("skip_scheduler") ? Settings{"schedule.schedule=constant", "schedule.warmup_steps=0"} : Settings(); }},
    {"lr_scheduler", one, "cosine", "", "`schedule.schedule`: `cosine`, `constant` for `const`, with `cooldown_share` for `const-cooldown`", "", schedule},
    {"lr_cooldown_end", one, "0.0", "", "`schedule.min_lr`", "Only with `--lr-scheduler const-cooldown`, as in OpenCLIP", [](const Parameters& p) { return if_cooling_down(p, "lr_cooldown_end", "schedule.min_lr"); }},
    {"lr_cooldown_power", one, "1.0", "", "`schedule.cooldown_power`", "Only with `--lr-scheduler const-cooldown`, as in OpenCLIP", [](const Parameters& p) { return if_cooling_down(p, "lr_cooldown_power", "schedule.cooldown_power"); }},
    {"save_frequency", one, "1", "", "`checkpoint.every_steps`: steps per epoch times this number, and `checkpoint.keep_every` with the same value", "A checkpoint stores the position in the data, so a run resumes within an epoch. OpenCLIP keeps all checkpoints; Tessera keeps the last `keep_last` and those at multiples of `keep_every`", checkpoints},
    {"save_most_recent", none, "False", "", "nothing to set", "`checkpoints/latest` always points to the newest", nothing},
    {"zeroshot_frequency", one, "2", "", "`evaluation.every_steps`: steps per epoch times this number", "There is one number for all tasks: `--val-frequency` takes precedence if there is validation data", [](const Parameters& p) { return (p.has("imagenet_val") || p.has("imagenet_v2")) && !p.has("val_data") ? evaluation_every(p, "zeroshot_frequency") : Settings(); }},
    {"val_frequency", one, "1", "", "`evaluation.every_steps`: steps per epoch times this number", "", [](const Parameters& p) { return p.has("val_data") ? evaluation_every(p, "val_frequency") : Settings(); }},
    {"resume", one, "None", "", "`trainer --resume auto` for `latest`; `start.weights` for a file", "From a checkpoint of open_clip_train only the weights are read; optimizer and step start from zero. From Tessera's own checkpoints, `--resume auto|PATH` continues bit for bit", resume, is_given("resume")},
    {"precision", one, "amp", "", "`training.precision`: `fp16` for amp and fp16, `bf16` for amp_bf16 and bf16, `float32` for fp32", "Weights, norms, softmax and losses are always float32: `fp16`, `bf16`, `pure_fp16` and `pure_bf16`, which keep weights in half precision in OpenCLIP, become autocast", precision, [](const Parameters& p) { return !p.text("precision").starts_with("amp") && p.text("precision") != "fp32"; }},
    {"model", one, "RN50", "", "`model.image` and `model.text`", "`trainer --from-open-clip` writes the settings of the towers; a file with the one line `model: NAME` is enough", nothing, {}, true},
    {"pretrained", one, "", "", "`start.weights`: OpenCLIP's file, unchanged", "For a tag, download its file first: Tessera downloads nothing. The tag's preprocessing is written into the YAML", pretrained},
    {"pretrained_image", none, "False", "", "`model.image.from`: timm's folder", "Download the folder with timm's weights first", nothing, is_given("pretrained_image")},
    {"lock_image", none, "False", "", "`parameters.frozen: [image]`", "Read-out, projection and batch norm statistics are frozen too. `data.features` then runs the encoder only once per image", locked, {}, true},
    {"lock_image_unlocked_groups", one, "0", "", "`parameters.frozen`: the names of the blocks before them", "Only for OpenCLIP's own ViT; other towers are frozen completely", nothing, {}, true},
    {"lock_image_freeze_bn_stats", none, "False", "", "nothing to set", "The statistics of a frozen tower never change", nothing},
    {"image_mean", several, "None", "", "`model.preprocessing.mean`", "", [](const Parameters& p) { return of_channels(p, "image_mean", "model.preprocessing.mean"); }},
    {"image_std", several, "None", "", "`model.preprocessing.std`", "", [](const Parameters& p) { return of_channels(p, "image_std", "model.preprocessing.std"); }},
    {"image_interpolation", one, "None", "", "`model.preprocessing.interpolation`", "Training crops use it too. In OpenCLIP they are bicubic, or random with timm's transforms and `random`, which is bicubic here", interpolation, is_given("image_interpolation")},
    {"image_resize_mode", one, "None", "model.preprocessing.resize_mode", "", "Only for evaluation, as in OpenCLIP: training takes random crops"},
    {"aug_cfg", several, "{}", "", "`data.loader.augmentation`: `scale`, `ratio`, `color_jitter`, `grayscale`", "timm's random erasing (`re_prob`, `re_count`) has no counterpart. As in OpenCLIP, `ratio` has an effect only with `use_timm`, and without `use_timm` color jitter needs `color_jitter_prob`. Images are decoded and resized by other code, which equals Pillow's with `data.loader.dct_scaling: off`, except for 16-bit gray images", augmentation, has_odd_augmentation},
    {"grad_checkpointing", none, "False", "", "`model.image.encoder.grad_checkpointing` and `model.text.encoder.grad_checkpointing`", "", [](const Parameters& p) { return p.has("grad_checkpointing") ? tower_settings("grad_checkpointing", "true") : Settings(); }, {}, true},
    {"local_loss", none, "False", "", "`objective.local_loss` of `clip`", "The loss is the same either way; here it is on by default", [](const Parameters& p) { return p.has("local_loss") && !p.has("siglip") && !model_is(p, "coca") ? Settings{"objective.local_loss=true"} : Settings(); }},
    {"gather_with_grad", none, "False", "", "nothing to set", "The gradient always belongs to the loss of the whole batch. Without this flag, OpenCLIP's towers get 1 / processes of it, which hardly affects Adam's step but does affect `--grad-clip-norm`", nothing, [](const Parameters& p) { return !p.has("gather_with_grad") && p.whole("world_size") > 1 && p.has("grad_clip_norm"); }},
    {"force_context_length", one, "None", "", "`tokenizer.context_length`", "The text encoder uses the tokenizer's length", [](const Parameters& p) { return p.has("force_context_length") ? Settings{"tokenizer.context_length=" + p.text("force_context_length")} : Settings(); }, {}, true},
    {"force_image_size", several, "None", "", "`model.preprocessing.image_size`", "The image encoder uses the size of the preprocessing", image_size, {}, true},
    {"force_quick_gelu", none, "False", "", "`activation: quick_gelu` of both encoders", "", [](const Parameters& p) { return p.has("force_quick_gelu") ? tower_settings("activation", "quick_gelu") : Settings(); }, {}, true},
    {"force_patch_dropout", one, "None", "", "`model.image.encoder.patch_dropout`", "", [](const Parameters& p) { return p.has("force_patch_dropout") ? Settings{"model.image.encoder.patch_dropout=" + p.text("force_patch_dropout")} : Settings(); }, {}, true},
    {"force_custom_text", none, "False", "", "nothing to set", "It changes only names in files, and Tessera reads both kinds", nothing},
    {"torchscript", none, "False", "", kNoCounterpart, "Tessera runs without Python anyway", nothing},
    {"torchcompile", none, "False", "", kNoCounterpart, "`training.cuda_graph: true` records a step on a GPU and replays it", nothing},
    {"trace", none, "False", "", kNoCounterpart, "In OpenCLIP it is for evaluation only", nothing},
    {"accum_freq", one, "1", "", "`data.loader.batch_size` times this number, with `training.micro_batch` for the batch size (GradCache)", "The loss over the whole batch is the same. OpenCLIP adds the temperature's gradient once per part, so there it is this many times as large", parts_of_batch, [](const Parameters& p) { return p.whole("accum_freq") > 1; }},
    {"device", one, "cuda", "", "`training.device: cpu`; else `training.tf32: true`, which open_clip_train switches on for GPUs", "", device},
    {"dist_url", one, "None", "", kNoCounterpart, "The launcher sets `MASTER_ADDR` and `MASTER_PORT`", nothing},
    {"dist_backend", one, "None", "", "`distributed.backend`: `nccl` or `gloo`", "", backend, [](const Parameters& p) { return p.has("dist_backend") && backend(p).empty(); }},
    {"report_to", one, "", "", "`log.tensorboard`; for wandb `log.command: python3 scripts/log_to_wandb.py PROJECT`", "The run's page `run.html` and `metrics.jsonl` are always written", report},
    {"wandb_notes", one, "", "", kNoCounterpart, "", nothing},
    {"wandb_project_name", one, "open-clip", "", "the argument of `scripts/log_to_wandb.py`", "", [](const Parameters& p) { return reports_to(p, "wandb") ? report(p) : Settings(); }},
    {"debug", none, "False", "", kNoCounterpart, "", nothing},
    {"copy_codebase", none, "False", "", kNoCounterpart, "The run's `config.yaml` has every setting, and its log has the program's commit", nothing},
    {"horovod", none, "False", "", kNoCounterpart, "`--nproc`, torchrun, srun or mpirun start the processes", nothing},
    {"ddp_static_graph", none, "False", "", kNoCounterpart, "There is no DDP: gradients are reduced in buckets as they become ready", nothing},
    {"no_set_device_rank", none, "False", "", "nothing to set", "A process that sees one GPU uses it", nothing},
    {"seed", one, "0", "seed", "", "The random numbers differ from PyTorch's. They depend on seed, epoch and sample, not on the number of ranks or workers"},
    {"grad_clip_norm", one, "None", "training.clip_norm", "", ""},
    {"lock_text", none, "False", "", "`parameters.frozen: [text]`", "The projection is frozen too", locked, {}, true},
    {"lock_text_unlocked_layers", one, "0", "", "`parameters.frozen`: the names of the layers before them", "Only for OpenCLIP's own text tower; other towers are frozen completely", nothing, {}, true},
    {"lock_text_freeze_layer_norm", none, "False", "", "nothing to set", "LayerNorms are frozen with the tower", nothing},
    {"log_every_n_steps", one, "100", "log.every_steps", "", "Rows of `metrics.jsonl` are written after steps n, 2n, ...; OpenCLIP logs after steps 1, n + 1, ... and the last step of an epoch"},
    {"coca_caption_loss_weight", one, "2.0", "", "`weight` of `captioning` in `objective: {name: weighted_sum}`", "", nothing, {}, true},
    {"coca_contrastive_loss_weight", one, "1.0", "", "`weight` of `clip` in `objective: {name: weighted_sum}`", "", nothing, {}, true},
    {"remote_sync", one, "None", "", "`checkpoint.command`, or `checkpoint.copy_to` for a second folder", "The command is called after each checkpoint, with the checkpoint's folder", remote_sync, is_given("remote_sync")},
    {"remote_sync_frequency", one, "300", "", kNoCounterpart, "Each checkpoint is sent as soon as it is written", nothing},
    {"remote_sync_protocol", one, "s3", "", "the command in `checkpoint.command`", "fsspec is a Python library: write your own command", nothing, [](const Parameters& p) { return p.has("remote_sync") && remote_sync(p).empty(); }},
    {"delete_previous_checkpoint", none, "False", "", "`checkpoint.keep_last: 1`", "", [](const Parameters& p) { return p.has("delete_previous_checkpoint") ? Settings{"checkpoint.keep_last=1"} : Settings(); }},
    {"distill_model", one, "None", "", "`objective: {name: distill, teacher: FILE}`", "The file describes the teacher's architecture; a bare file of weights needs an `open_clip_config.json` or `params.txt` next to it. Accumulation works, too", distillation, is_given("distill_model")},
    {"distill_pretrained", one, "None", "", "`objective.teacher`: OpenCLIP's file, unchanged", "For a tag, download its file first: Tessera downloads nothing", nothing, is_given("distill_pretrained")},
    {"use_bnb_linear", one, "None", "", kNoCounterpart, "There are no 8-bit layers", nothing},
    {"siglip", none, "False", "", "`objective: siglip`", "For weights without a bias, OpenCLIP sets the bias to 0, as `objective.init_logit_bias: 0` does", sigmoid_loss},
    {"loss_dist_impl", one, "None", "", "nothing to set", "Embeddings are gathered once; the loss is the same for all of OpenCLIP's implementations", nothing},
  };
  return list;
}

const Flag* find_flag(const std::string& name) {
  for (const Flag& flag : flags())
    if (flag.name == name) return &flag;
  return nullptr;
}

Parameters with_defaults(std::map<std::string, std::string> given) {
  std::map<std::string, std::string> defaults = {{"world_size", "1"}, {"csv_rows", "None"}};
  for (const Flag& flag : flags()) defaults.emplace(flag.name, flag.standard);
  return Parameters(std::move(given), std::move(defaults));
}

std::string Flag::option() const {
  std::string out = "--" + name;
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::string Flag::counterpart() const {
  return key.empty() ? here : "`" + key + "`";
}

bool Flag::differs(const Parameters& parameters) const {
  return matters ? matters(parameters) : here == kNoCounterpart && parameters.changed(name);
}

Settings Flag::settings(const Parameters& parameters) const {
  if (convert) return convert(parameters);
  return parameters.has(name) ? Settings{key + "=" + parameters.yaml(name)} : Settings();
}

}  // namespace tessera::tools::open_clip
