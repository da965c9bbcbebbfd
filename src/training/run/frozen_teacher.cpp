#include <algorithm>

#include "src/training/run/teacher.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/evaluation/inference.h>

namespace tessera {
namespace {

std::string size_of(config::Size size) {
  return concat(size.height, " x ", size.width);
}

// Checks that the teacher would turn texts into the ids that the student sees.
void check_same_ids(const std::string& path, const InferenceModel& teacher, const Tokenizer& ours) {
  const char* kProbe = "Two small Dogs, a red-brown cat & 3 tulips; it's na\u00efve.";
  const Tokenizer& theirs = *teacher.tokenizer;
  const char* kSameTokenizer = ": the teacher sees the ids of the student's texts, so both need the same tokenizer";
  if (!teacher.tokenizer_error.empty() || theirs.vocabulary_bytes() != ours.vocabulary_bytes())
    user_error("objective.teacher: ", path, " has another vocabulary than the run's tokenizer", kSameTokenizer);
  if (theirs.context_length() < ours.context_length())
    user_error("objective.teacher: ", path, " takes texts of ", theirs.context_length(), " tokens, but the run's tokenizer makes ",
               ours.context_length(), ": set tokenizer.context_length to at most that");
  std::vector<std::int64_t> mine = ours.encode(kProbe), same = theirs.encode(kProbe);
  const std::size_t common = std::min(mine.size(), same.size());
  mine.resize(common > 1 ? common - 1 : common);  // the last id of a cut text is the end token
  same.resize(mine.size());
  if (mine != same) user_error("objective.teacher: ", path, " splits texts into other tokens than the run's tokenizer", kSameTokenizer);
}

}  // namespace

Teacher load_teacher(const std::string& path, const Preprocessing& preprocessing, const Tokenizer* tokenizer, const at::Device& device) {
  InferenceModel loaded = load_for_inference(path, "cpu");
  const Preprocessing& own = loaded.model->settings().preprocessing;
  if (keeps_shapes(own) != keeps_shapes(preprocessing))
    user_error("objective.teacher: ", path, " and the run differ in model.preprocessing.resize_mode: naflex: the teacher sees the student's "
               "images, so both or none must keep their shapes");
  if (!loaded.model->has_text_tower()) user_error("objective.teacher: ", path, " has no text tower: name a model of images and texts");
  if (own.image_size != preprocessing.image_size && !keeps_shapes(own)) {
    log::info("objective.teacher: ", path, " was made for images of ", size_of(own.image_size), " pixels and sees the student's, of ",
              size_of(preprocessing.image_size));
    loaded = load_for_inference(path, "cpu", {.image_size = preprocessing.image_size});
  }
  if (tokenizer != nullptr) check_same_ids(path, loaded, *tokenizer);
  loaded.model->to(device);
  return frozen_teacher(loaded.model, stored_logit_scale(loaded.file.weights), loaded.tokenizer);
}

}  // namespace tessera
