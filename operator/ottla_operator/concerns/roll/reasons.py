"""The conditions of rolling restarts, and their reasons."""

from __future__ import annotations

from ottla_operator.api.condition_reasons import CLUSTER, ROLLED, WAIT, ConditionType, of_cluster, usual_reasons

TYPES = (
    ConditionType(
        CLUSTER, ROLLED, "Every broker and ZooKeeper server runs with the declared template",
        is_needed_for_ready=False,
    ),
)  # fmt: skip

REASONS = (
    *usual_reasons(ROLLED),
    of_cluster(
        ROLLED, "False", "NotOwned",
        "StatefulSets with the names of brokers or servers belong to somebody else; they run what that one declares.",
        "Delete or rename them; or give the KafkaCluster another name.",
    ),
    of_cluster(ROLLED, "False", "Rolling", "A rolling restart is under way; status.roll shows its step.", WAIT),
    of_cluster(
        ROLLED, "False", "Blocked", "A rolling restart has waited for two minutes or longer in one step.",
        "Remove the blocker that the message names. The roll then goes on by itself.",
    ),
    of_cluster(
        ROLLED, "False", "ProgressDeadlineExceeded",
        "Members that a roll has restarted do not come back: no progress for spec.rolling.progressDeadlineSeconds. "
        "Nobody else is restarted.",
        "Read in the message what they wait for and how their containers ended. Correct the change or take it back: "
        "these members are restarted first. If they only need more time, nothing: the roll goes on by itself.",
    ),
    of_cluster(
        ROLLED, "False", "AwaitingApproval",
        "spec.rolling.approval is Manual, and the restarts that status.roll.plan lists are not approved yet.",
        "Look at status.roll.plan, then set the annotation with the command in the message.",
    ),
    of_cluster(
        ROLLED, "False", "AwaitingWindow",
        "Restarts wait for one of spec.maintenanceWindows; status.maintenance says when the next one opens.",
        "Nothing; or open one with the annotation kafka.ottla.dev/maintenance-until.",
    ),
    of_cluster(
        ROLLED, "False", "AwaitingTurn",
        "As many clusters as the operator restarts at a time (maxRollingClusters of the chart) are being restarted.",
        "Nothing; it goes on when one of the clusters that the message names is done, or waits for a person.",
    ),
    of_cluster(
        ROLLED, "False", "Held",
        "spec.brokers.overrides holds brokers that have a change pending. All others run with the declared template.",
        "Set their state to Active, or remove their entries, when they may be restarted.",
    ),
    of_cluster(
        ROLLED, "False", "DesiredStateUnknown",
        "What should run is not known because of the conditions that the message names; what runs stays as it is.",
        "See those conditions.",
    ),
)  # fmt: skip
