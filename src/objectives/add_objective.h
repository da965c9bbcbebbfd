#pragma once

#include <tessera/objectives/objective.h>

namespace tessera {

/// Adds an objective that is made from its settings and the context.
template <class Made, class Settings>
void add_objective(ObjectiveRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help,
                     [](const Settings& settings, const ObjectiveContext& context) -> std::shared_ptr<Objective> {
                       return std::make_shared<Made>(settings, context);
                     });
}

// Each of these functions adds the objective of its name.
void add_affinity(ObjectiveRegistry& list);
void add_clip(ObjectiveRegistry& list);
void add_cosmos(ObjectiveRegistry& list);
void add_distill(ObjectiveRegistry& list);
void add_dreamlip(ObjectiveRegistry& list);
void add_filip(ObjectiveRegistry& list);
void add_gloria(ObjectiveRegistry& list);
void add_koleo(ObjectiveRegistry& list);
void add_masked_prediction(ObjectiveRegistry& list);
void add_mgca(ObjectiveRegistry& list);
void add_multi_positive_clip(ObjectiveRegistry& list);
void add_multi_positive_sigmoid(ObjectiveRegistry& list);
void add_pacl(ObjectiveRegistry& list);
void add_region_contrast(ObjectiveRegistry& list);
void add_siglip(ObjectiveRegistry& list);
void add_sparc(ObjectiveRegistry& list);
void add_subcaption_grouping(ObjectiveRegistry& list);

}  // namespace tessera
