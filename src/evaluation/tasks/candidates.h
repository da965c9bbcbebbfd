#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/data/source.h>
#include <tessera/report/task_result.h>

namespace tessera {

/// How the class names of a task belong to the classes of its data.
struct NamedClasses {
  /// True if some name occurs at different positions in the two lists (case and punctuation do not matter), or if no name is in both lists,
  /// but each name of the data is part of another name of the task ("dog" of "a photo of a dog"), not all in the same order. In lists of
  /// the same length, the second rule also applies to the names that are left after the first. Otherwise the task's i-th name belongs to
  /// the data's i-th class.
  bool by_name = false;
  std::vector<std::int64_t>
      place;             // if by_name: for each class of the data, its index among the task's names; -1 if it has none
  std::string note;      // for log and report: which class got which name; empty if all keep their names
  bool guessed = false;  // true if nothing but the position says that some name belongs to its class
};
NamedClasses match_names(const std::vector<std::string>& task, const std::vector<std::string>& source);

/// Adds the note, if there is one, to the result's notes, with a text `before` it; a guess is also a warning.
void add_note(const NamedClasses& matched, TaskResult& result, const std::string& before = "");

/// The classes among which the images of a source are classified.
struct Candidates {
  std::shared_ptr<const Source> source;
  std::string task;  // the task's registered name, for messages
  std::vector<std::string> names;
  /// For each label of the source, the index of its class in `names`. The value is -1 for the background of masks, which has no
  /// prompt, and kNotAsked for a class that the task does not list.
  std::vector<std::int64_t> place;
  std::vector<std::string> source_names;  // the source's class names, for messages
  NamedClasses matched = {};              // its note is for add_note()

  static constexpr std::int64_t kNotAsked = -2;

  /// Returns the index of the sample's class in `names`, or -1 for the background. Throws TaskMisfit if the label has no name or
  /// the name is not in `names`.
  std::int64_t label_of(const Sample& sample) const;
  /// Returns label_of() for each sample.
  std::vector<std::int64_t> labels_of(const std::vector<EvaluationSample>& samples) const;

  /// Returns the requirement that a sample has a label other than background. Images that show only background are then
  /// skipped. This object must outlive the result.
  Required asked() const;
  /// Checks a few samples of the source, as check_samples() does. Throws TaskMisfit if they have no labels, or like label_of().
  void check(std::int64_t max_samples) const;
};

/// Returns a function that maps the label of a sample of `test` to the label of its class in `train`. It changes no label, unless the
/// classes must be matched by name; then it throws TaskMisfit if `train` does not have the sample's class. Adds a note to `result` if
/// classes with different names count as the same class.
std::function<std::int64_t(const Sample&)> labels_of_train(const Source& train, const Source& test, TaskResult& result);

/// Returns the requirement that a sample has a class label. The label is a number, or a name if the source has no list of
/// classes.
Required labeled_or_named();

/// Returns the classes in a task's setting `classes` or, if the setting is empty, the source's classes. match_names() decides how the
/// task's names belong to the source's classes. Throws TaskMisfit if there are no class names.
Candidates candidates_for(const TextList& classes, std::shared_ptr<const Source> source, const std::string& task);

}  // namespace tessera
