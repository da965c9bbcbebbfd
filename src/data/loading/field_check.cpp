#include "src/base/printable.h"
#include "src/data/features/feature_folder.h"
#include "src/data/loading/sample_pass.h"
#include "src/data/loading/sample_transform.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kProbed = 32;  // number of samples to check before reporting that a source lacks a field

struct ProbedSample : SampleOutcome {
  std::string missing;  // a field that the sample lacks; empty if it has all
  bool lacks_features = false;
  std::vector<std::string> found;
};

void check_component(const std::shared_ptr<const Source>& source, const SourceComponent& component,
                     const std::shared_ptr<const SampleTransform>& transform, const LoaderSettings& settings) {
  const PassPlan plan = plan_component(source, component, kProbed, settings);
  SamplePass<ProbedSample> pass(plan, [transform](Sample& sample, std::int64_t, ProbedSample& out) {
    out.missing = transform->missing_field(sample);
    out.lacks_features = out.missing.empty() && transform->lacks_features(sample);
    out.found = transform->fields_of(sample);
  });
  std::set<std::string> found, missing;
  bool without_features = false;
  for (std::int64_t i = 0; i < plan.count; ++i) {
    const ProbedSample sample = pass.next();
    if (!sample.good()) continue;  // it does not show whether the source lacks a field; the loader will count it
    if (sample.missing.empty() && !sample.lacks_features) return;
    without_features |= sample.lacks_features;
    if (sample.missing.empty()) continue;
    missing.insert(sample.missing);
    found.insert(sample.found.begin(), sample.found.end());
  }
  if (without_features)
    user_error("data.features: ", transform->features()->path(), " was written for other images (",
               printable(transform->features()->manifest().data), "): it holds no features of the samples checked of ",
               component.described, "; write them again with trainer --write-features");
  if (missing.empty()) return;
  std::string behind;
  for (const std::string& name : missing)
    if (const TextView* view = transform->find_view(name); view != nullptr && !view->fields.empty())
      behind += concat("; ", name, " come from ", view->fields, " (data.loader.", name, ")");
  user_error(component.described, ": none of the ", plan.count, " samples checked has all that the objective needs: missing ",
             join_names({missing.begin(), missing.end()}), "; ", describe_fields(found, needed_fields(transform->needs()), component),
             behind);
}

}  // namespace

void check_fields(const std::shared_ptr<const Source>& source, const std::shared_ptr<const SampleTransform>& transform,
                  const LoaderSettings& settings) {
  for (const SourceComponent& component : source->mixing().components) check_component(source, component, transform, settings);
}

std::string describe_fields(const std::set<std::string>& found, const std::vector<std::string>& needed,
                            const SourceComponent& component) {
  const std::string known = component.source->describe_fields(needed);
  return concat(found.empty() ? "none could be read" : "found " + join_names({found.begin(), found.end()}), "; needed ",
                join_names(needed), ". ",
                known.empty() ? "Check the source's settings (names of its members or columns)" : known);
}

}  // namespace tessera
