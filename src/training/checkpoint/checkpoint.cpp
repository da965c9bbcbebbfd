#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <unistd.h>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "src/training/checkpoint/best_checkpoint.h"
#include "src/training/checkpoint/checkpoint.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kEma = "ema.safetensors";
constexpr const char* kTeacher = "teacher.safetensors";
constexpr const char* kAdapters = "adapters.safetensors";
constexpr const char* kState = "state.safetensors";
constexpr const char* kUpdatesKey = "updates";
constexpr const char* kPart = "optimizer_";  // prefix of the files of parts
constexpr const char* kPlacesKey = "places";

// Returns a 64-bit checksum of a file, computed by multiplying and rotating words. It detects torn writes and flipped bits, not
// deliberate changes. The file is read in pieces, because it may be very large.
std::string checksum(const std::string& path) {
  constexpr std::size_t kPiece = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) user_error(path, ": cannot read: ", std::strerror(errno));
  std::string piece(kPiece, '\0');
  std::uint64_t hash = 0x9E3779B97F4A7C15ULL ^ fs::file_size(path);
  while (file) {
    file.read(piece.data(), kPiece);
    if (file.bad()) user_error(path, ": cannot read: ", std::strerror(errno));
    const auto size = static_cast<std::size_t>(file.gcount());
    for (std::size_t i = 0; i < size; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, piece.data() + i, std::min<std::size_t>(8, size - i));
      hash = std::rotl(hash ^ word, 29) * 0xBF58476D1CE4E5B9ULL;
    }
  }
  std::ostringstream text;
  text << std::hex << hash;
  return text.str();
}

// Syncs a file or a folder to disk.
void sync_path(const std::string& path) {
  const int handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (handle < 0) return;
  ::fsync(handle);
  ::close(handle);
}

nlohmann::json facts_of(const std::string& path) { return {{"bytes", fs::file_size(path)}, {"checksum", checksum(path)}}; }

// Returns the file in which another rank leaves the facts of a file for the manifest.
std::string facts_path(const std::string& file) { return file + ".facts"; }

// Returns the names of the files of parts in a folder.
std::vector<std::string> part_names(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename(); name.starts_with(kPart) && name.ends_with(".safetensors")) out.push_back(name);
  std::ranges::sort(out);
  return out;
}

nlohmann::json make_manifest(const std::string& folder, const RunState& state) {
  std::vector<std::string> names = part_names(folder);
  names.insert(names.end(), {kModel, kEma, kTeacher, kAdapters, kState});
  nlohmann::json files;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name, facts = facts_path(path);
    if (fs::exists(facts)) {
      files[name] = nlohmann::json::parse(io::read_file(facts));
      fs::remove(facts);
    } else if (fs::exists(path)) {
      files[name] = facts_of(path);
    }
  }
  return {{"step", state.step}, {"files", files}};
}

nlohmann::json to_json(const StatePart& part) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, place] : part.places) out[name] = {place.sizes, place.strides, place.begin, place.end};
  return out;
}

// Describes the part in a file. Reads its elements when they are needed.
StatePart part_in(const std::string& path) {
  StatePart out;
  try {
    const auto places = nlohmann::json::parse(io::load_safetensors_metadata(path).at(kPlacesKey));
    for (const auto& [name, place] : places.items())
      out.places[name] = {place.at(0), place.at(1), place.at(2), place.at(3)};
  } catch (const std::exception& error) {
    user_error(path, ": damaged: the places of its elements are missing or invalid (", error.what(), ")");
  }
  out.read = [path] { return io::load_safetensors(path).tensors; };
  return out;
}

/// One model file of a checkpoint, with its weights and the prefix that its tensors have in adapters.safetensors.
template <class Weights>
struct WeightFile {
  const char* name;
  const char* prefix;
  Weights* weights;
};

template <class AnyCheckpoint>
auto weight_files(AnyCheckpoint& checkpoint) {
  using Weights = std::remove_reference_t<decltype((checkpoint.ema))>;
  return std::array<WeightFile<Weights>, 3>{
      {{kModel, "", &checkpoint.model.weights}, {kEma, "ema.", &checkpoint.ema}, {kTeacher, "teacher.", &checkpoint.teacher}}};
}

// Writes the model files of a checkpoint and returns their paths.
std::vector<std::string> write_models(const Checkpoint& checkpoint, const std::string& folder) {
  std::vector<std::string> out;
  ModelFile model = checkpoint.model;
  for (const auto& [file, prefix, weights] : weight_files(checkpoint)) {
    if (weights->empty()) continue;
    model.weights = merged(*weights, checkpoint.updates);
    save_model_file(out.emplace_back(folder + "/" + file), model);
  }
  return out;
}

std::map<std::string, at::Tensor> adapter_tensors(const Checkpoint& checkpoint) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [file, prefix, weights] : weight_files(checkpoint)) {
    if (weights->empty()) continue;
    for (const auto& [name, tensor] : unmerged(*weights, checkpoint.updates)) out[prefix + name] = tensor;
  }
  return out;
}

nlohmann::json to_json(const std::vector<WeightUpdate>& updates) {
  nlohmann::json out = nlohmann::json::array();
  for (const WeightUpdate& each : updates)
    out.push_back({{"weight", each.weight}, {"rows", {each.first, each.rows}}, {"a", each.a}, {"b", each.b}, {"scale", each.scale}});
  return out;
}

std::vector<WeightUpdate> updates_from_json(const std::string& text, const std::string& origin) {
  try {
    std::vector<WeightUpdate> out;
    for (const nlohmann::json& each : nlohmann::json::parse(text))
      out.push_back({each.at("weight"), each.at("rows").at(0), each.at("rows").at(1), each.at("a"), each.at("b"), each.at("scale")});
    return out;
  } catch (const nlohmann::json::exception& error) {
    user_error(origin, ": damaged: the description of its adapters is missing or invalid (", error.what(), ")");
  }
}

/// Restores the adapters and the unmerged weights from adapters.safetensors. The model files contain only merged weights.
void restore_adapters(Checkpoint& checkpoint, const std::string& path) {
  io::TensorFile stored = io::load_safetensors(path);
  checkpoint.updates = updates_from_json(stored.metadata[kUpdatesKey], path);
  auto files = weight_files(checkpoint);
  std::ranges::reverse(files);  // the model's prefix is empty and matches every name, so the model must come last
  for (const auto& [name, tensor] : stored.tensors) {
    const auto file = std::ranges::find_if(files, [&](const auto& each) { return name.starts_with(each.prefix); });
    (*file->weights)[name.substr(std::string_view(file->prefix).size())] = tensor;
  }
}

nlohmann::json to_json(const RunState& state) {
  nlohmann::json out = {{"step", state.step},
                        {"epoch", state.data.epoch},
                        {"cursor", state.data.cursor},
                        {"samples", state.samples},
                        {"seconds", state.seconds},
                        {"skipped", state.skipped},
                        {"loss_scale", {state.loss_scale.scale, state.loss_scale.good_steps}},
                        {"id", state.id},
                        {"folder", state.folder}};
  for (const DataPosition& rank : state.ranks) out["ranks"].push_back({rank.epoch, rank.cursor});
  return out;
}

RunState state_from_json(const std::string& text, const std::string& origin) {
  try {
    const auto json = nlohmann::json::parse(text);
    RunState state;
    state.step = json.at("step");
    state.data = {json.at("epoch"), json.at("cursor")};
    for (const auto& rank : json.value("ranks", nlohmann::json::array()))
      state.ranks.push_back({rank.at(0), rank.at(1)});
    state.samples = json.at("samples");
    state.seconds = json.at("seconds");
    state.skipped = json.value("skipped", std::int64_t{0});
    if (const auto scale = json.find("loss_scale"); scale != json.end())
      state.loss_scale = {scale->at(0), scale->at(1)};
    state.id = json.value("id", "");
    state.folder = json.value("folder", "");
    return state;
  } catch (const nlohmann::json::exception& error) {
    user_error(origin, ": damaged: it holds no valid run state (", error.what(), ")");
  }
}

}  // namespace

Checkpoint share_of(Checkpoint whole, int rank, int ranks) {
  const int writers = whole.updates.empty() ? ranks : 1;
  if (rank != 0) whole.model.weights.clear();
  if (rank != 1 % writers) whole.ema.clear();
  if (rank != 2 % writers) whole.teacher.clear();
  return whole;
}

void check_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  const auto manifest = nlohmann::json::parse(io::read_file(path), nullptr, false);
  const auto is_file = [](const nlohmann::json& facts) {
    return facts.is_object() && facts.value("bytes", nlohmann::json()).is_number_unsigned() &&
           facts.value("checksum", nlohmann::json()).is_string();
  };
  const auto files = manifest.is_object() ? manifest.value("files", nlohmann::json()) : nlohmann::json();
  if (!files.is_object() || !std::all_of(files.begin(), files.end(), is_file))
    user_error(path, ": damaged: not the manifest of a checkpoint");
  for (const auto& [name, facts] : files.items()) {
    const std::string file = folder + "/" + name;
    std::error_code missing;
    const auto bytes = fs::file_size(file, missing);
    if (missing) user_error(file, ": missing");
    if (bytes != facts.value("bytes", std::uintmax_t{0}))
      user_error(file, ": damaged: ", bytes, " bytes, the manifest says ", facts.value("bytes", std::uintmax_t{0}));
    if (checksum(file) != facts.value("checksum", ""))
      user_error(file, ": damaged: its checksum differs from the manifest's");
  }
}

bool is_step_folder(const std::string& name) {
  constexpr std::size_t digits = 5, most = digits + 18;
  return name.starts_with("step_") && name.size() > digits && name.size() <= most &&
         name.find_first_not_of("0123456789", digits) == std::string::npos;
}

std::string step_folder_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 7) digits.insert(0, 7 - digits.size(), '0');
  return "step_" + digits;
}

std::int64_t step_of(const std::string& step_folder) {
  return std::stoll(fs::path(step_folder).filename().string().substr(5));
}

CheckpointFolder::CheckpointFolder(std::string folder, std::int64_t keep_last, std::int64_t keep_every)
    : folder_(std::move(folder)), keep_last_(keep_last), keep_every_(keep_every) {}

std::vector<std::string> CheckpointFolder::list() const {
  std::vector<std::string> out;
  std::error_code missing;
  try {
    for (const auto& entry : fs::directory_iterator(folder_, missing)) {
      if (is_step_folder(entry.path().filename().string()) && entry.is_directory()) out.push_back(entry.path().string());
    }
  } catch (const fs::filesystem_error& error) {
    user_error(folder_, ": cannot list the checkpoints: ", error.code().message());
  }
  std::sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return out;
}

void CheckpointFolder::remove_leftovers() const {
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_, missing))
    if (entry.path().filename().string().starts_with(".writing_")) fs::remove_all(entry.path(), missing);
}

std::string CheckpointFolder::aside(std::int64_t step) const { return folder_ + "/.writing_" + step_folder_name(step); }

void CheckpointFolder::prepare(std::int64_t step) const {
  std::error_code error;
  fs::remove_all(aside(step), error);
  if (!fs::create_directories(aside(step), error)) user_error(aside(step), ": cannot create the folder: ", error.message());
}

void CheckpointFolder::write_part(std::int64_t step, const std::optional<StatePart>& part, const Checkpoint& share, int rank,
                                  int ranks) const {
  std::vector<std::string> paths = write_models(share, aside(step));
  if (part) {
    const auto padded = [](int number) { return concat(std::setw(4), std::setfill('0'), number); };
    paths.push_back(concat(aside(step), "/", kPart, padded(rank), "_of_", padded(ranks), ".safetensors"));
    io::save_safetensors(paths.back(), part->read(), {{kPlacesKey, to_json(*part).dump()}});
  }
  for (const std::string& path : paths) io::write_file(facts_path(path), facts_of(path).dump());
}

std::string CheckpointFolder::write(const Checkpoint& checkpoint, const std::function<void()>& others) const {
  const std::string name = step_folder_name(checkpoint.state.step);
  const std::string aside = this->aside(checkpoint.state.step);
  const std::string target = folder_ + "/" + name;
  std::error_code error;
  bool waited = !others;
  const auto give_up = [&] {
    try {
      if (!waited) others();  // the other ranks still write into the folder
    } catch (const UserError& problem) {
      log::warning(problem.what());
    }
    fs::remove_all(aside, error);
  };
  try {
    if (!others) prepare(checkpoint.state.step);
    write_models(checkpoint, aside);
    if (const auto adapters = adapter_tensors(checkpoint); !adapters.empty())
      io::save_safetensors(aside + "/" + kAdapters, adapters, {{kUpdatesKey, to_json(checkpoint.updates).dump()}});
    std::map<std::string, std::string> about = {
        {"run_state", to_json(checkpoint.state).dump()}, {"config", checkpoint.config}, {"data", checkpoint.data}};
    if (!checkpoint.tuning.empty()) about["tuning"] = checkpoint.tuning;
    io::save_safetensors(aside + "/" + kState, checkpoint.optimizer, about);
    if (!std::exchange(waited, true)) others();
    io::write_file(aside + "/" + kManifest, make_manifest(aside, checkpoint.state).dump(2) + "\n");
    sync_path(aside);
    // Replaces an older checkpoint of the same step, which exists if the run was resumed from an earlier step.
    const std::string old = folder_ + "/.writing_old_" + name;
    if (fs::exists(target)) fs::rename(target, old);
    fs::rename(aside, target);
    sync_path(folder_);
    fs::remove_all(old, error);
    io::write_file(folder_ + "/latest", name + "\n");
  } catch (const fs::filesystem_error& problem) {
    give_up();
    user_error(target, ": cannot write the checkpoint: ", problem.code().message());
  } catch (...) {
    give_up();
    throw;
  }
  return target;
}

std::string CheckpointFolder::save(const Checkpoint& checkpoint, const std::function<void()>& before_deleting,
                                   const std::function<void()>& others) {
  std::string target;
  try {
    target = write(checkpoint, others);
  } catch (const UserError& error) {
    const std::vector<std::string> passing = passing_list(checkpoint.state.step);
    const auto kept = static_cast<std::int64_t>(passing.size());
    if (kept < 2 || kept < keep_last_) throw;
    log::warning(error.what(), "; making room by deleting ", passing.front(), ", which would be deleted next");
    before_deleting();
    prune(keep_last_ - 1, checkpoint.state.step);
    if (others) throw;
    target = write(checkpoint, {});
  }
  try {
    before_deleting();
    prune(keep_last_, checkpoint.state.step);
  } catch (const UserError& error) {
    log::warning(error.what(), "; the new checkpoint is written, but older ones are not deleted");
  }
  return target;
}

std::vector<std::string> CheckpointFolder::passing_list(std::int64_t step) const {
  return passing_checkpoints(list(), keep_every_, best_checkpoint_in(folder_), step);
}

std::vector<std::string> passing_checkpoints(std::vector<std::string> checkpoints, std::int64_t keep_every, const std::string& best,
                                             std::int64_t step) {
  if (keep_every > 0) std::erase_if(checkpoints, [&](const std::string& each) { return step_of(each) % keep_every == 0; });
  std::erase(checkpoints, best);
  const auto later = std::find_if(checkpoints.begin(), checkpoints.end(), [&](const std::string& each) { return step_of(each) > step; });
  std::rotate(checkpoints.begin(), later, checkpoints.end());
  return checkpoints;
}

void CheckpointFolder::prune(std::int64_t keep, std::int64_t step) const {
  const std::vector<std::string> all = passing_list(step);
  std::error_code error;
  for (std::size_t i = 0; i + static_cast<std::size_t>(std::max<std::int64_t>(keep, 1)) < all.size(); ++i) {
    // Renames the folder before deleting it, so that a half-deleted folder is never mistaken for a checkpoint.
    const std::string aside = folder_ + "/.writing_old_" + fs::path(all[i]).filename().string();
    fs::rename(all[i], aside, error);
    if (!error) fs::remove_all(aside, error);
    if (error) log::warning(all[i], ": cannot delete the old checkpoint: ", error.message());
  }
}

void copy_checkpoint(const std::string& checkpoint, const std::string& folder) {
  const fs::path name = fs::path(checkpoint).filename(), target = fs::path(folder) / name;
  const fs::path aside = fs::path(folder) / (".writing_" + name.string());
  try {
    fs::create_directories(folder);
    fs::remove_all(aside);
    fs::create_directories(aside);
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      fs::copy_file(entry.path(), aside / entry.path().filename());
      sync_path((aside / entry.path().filename()).string());
    }
    sync_path(aside.string());
    fs::remove_all(target);
    fs::rename(aside, target);
    sync_path(folder);
    io::write_file(folder + "/latest", name.string() + "\n");
  } catch (const fs::filesystem_error& problem) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    user_error(target.string(), ": cannot copy the checkpoint: ", problem.code().message());
  }
}

Checkpoint load_checkpoint(const std::string& folder, bool verify) {
  if (verify) check_manifest(folder);
  Checkpoint out;
  out.model = load_model_file(folder + "/" + kModel);
  if (fs::exists(folder + "/" + kEma)) out.ema = io::load_safetensors(folder + "/" + kEma).tensors;
  if (fs::exists(folder + "/" + kTeacher)) out.teacher = io::load_safetensors(folder + "/" + kTeacher).tensors;
  if (fs::exists(folder + "/" + kAdapters)) restore_adapters(out, folder + "/" + kAdapters);
  const std::string path = folder + "/" + kState;
  io::TensorFile state = io::load_safetensors(path);
  out.optimizer = std::move(state.tensors);
  out.state = state_from_json(state.metadata["run_state"], path);
  out.config = state.metadata["config"];
  out.data = state.metadata["data"];
  out.tuning = state.metadata["tuning"];
  if (!out.optimizer.contains("step")) user_error(path, ": damaged: the optimizer's state lacks step");
  for (const std::string& name : part_names(folder)) out.parts.push_back(part_in(folder + "/" + name));
  return out;
}

std::map<std::string, at::Tensor> whole_state(const Checkpoint& checkpoint) {
  std::map<std::string, at::Tensor> out = checkpoint.optimizer;
  for (const StatePart& part : checkpoint.parts)
    for (const auto& [name, elements] : part.read()) {
      const StatePart::Place& place = part.places.at(name);
      at::Tensor& whole = out[name];
      if (!whole.defined()) whole = at::empty_strided(place.sizes, place.strides, elements.options());
      whole.as_strided({whole.numel()}, {1}).slice(0, place.begin, place.end).copy_(elements);
    }
  return out;
}

std::optional<std::pair<std::string, Checkpoint>> load_newest_checkpoint(const CheckpointFolder& folder) {
  const std::vector<std::string> all = folder.list();
  std::string first_problem;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    try {
      return std::pair{*it, load_checkpoint(*it)};
    } catch (const UserError& error) {
      log::warning(error.what(), "; trying the previous checkpoint");
      if (first_problem.empty()) first_problem = error.what();
    }
  }
  if (!all.empty()) user_error("no checkpoint can be read: ", first_problem);
  return std::nullopt;
}

}  // namespace tessera
