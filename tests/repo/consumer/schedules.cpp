// Uses one layer alone: schedules need neither tensors nor ranks.
#include "schedule/registry.h"

int main() {
  return penstock::schedule::registered_schedules().empty() ? 1 : 0;
}
