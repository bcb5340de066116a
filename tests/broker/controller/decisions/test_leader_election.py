"""Elections: what holds for every assignment, ISR and set of live brokers."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.controller.decisions.leader_election import decide_initial_leader, decide_leader
from ottla_broker.controller.values import NO_LEADER, LeaderAndIsr, LeaderRecoveryState


@st.composite
def situations(draw):
    replicas = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    online = frozenset(draw(st.lists(st.integers(0, 6), unique=True)))
    state = LeaderAndIsr(leader, draw(st.integers(0, 9)), isr, draw(st.integers(0, 9)), 1)
    return replicas, state, online


@given(situations())
def test_a_clean_election_never_picks_a_leader_outside_the_isr(situation) -> None:
    replicas, current, online = situation
    decision = decide_leader(replicas, current, online=online, unclean=False)
    if decision is None:
        return
    after = decision.leadership
    assert after.leader == NO_LEADER or (after.leader in current.isr and after.leader in online)
    assert set(after.isr) <= set(current.isr) and after.isr


@given(situations(), st.booleans())
def test_every_written_change_raises_the_leader_epoch_and_says_why(situation, unclean) -> None:
    replicas, current, online = situation
    decision = decide_leader(replicas, current, online=online, unclean=unclean)
    if decision is None:
        return
    assert decision.leadership.leader_epoch == current.leader_epoch + 1
    assert decision.reason
    assert (decision.leadership.leader, decision.leadership.isr) != (current.leader, current.isr)


@given(situations(), st.booleans())
def test_a_decision_is_stable_deciding_again_changes_nothing(situation, unclean) -> None:
    replicas, current, online = situation
    decision = decide_leader(replicas, current, online=online, unclean=unclean)
    if decision is not None:
        assert decide_leader(replicas, decision.leadership, online=online, unclean=unclean) is None


def test_an_unclean_election_takes_a_replica_that_is_being_added_only_for_want_of_others() -> None:
    current = LeaderAndIsr(1, 4, (1,), 7, 1)
    for online, leader in (({2, 3, 4}, 2), ({3, 4}, 4), ({3}, 3)):
        decision = decide_leader((3, 2, 4, 1), current, online=frozenset(online), unclean=True, adding=(3,))
        assert (decision.leadership.leader, decision.leadership.isr) == (leader, (leader,))


@given(situations())
def test_an_unclean_election_only_happens_when_nobody_in_sync_is_online(situation) -> None:
    replicas, current, online = situation
    decision = decide_leader(replicas, current, online=online, unclean=True)
    if decision is not None and decision.unclean:
        assert not set(current.isr) & online
        assert decision.leadership.isr == (decision.leadership.leader,)
        assert decision.leadership.recovery_state is LeaderRecoveryState.RECOVERING
    elif set(replicas) & online:
        leader = decision.leadership.leader if decision else current.leader
        assert leader in online


@given(situations())
def test_the_first_online_member_of_the_isr_in_assignment_order_leads(situation) -> None:
    replicas, current, online = situation
    decision = decide_leader(replicas, current, online=online, unclean=False)
    if current.leader not in online and set(current.isr) & online:
        assert decision.leadership.leader == next(b for b in replicas if b in current.isr and b in online)
        assert decision.leadership.isr == tuple(b for b in current.isr if b in online)


def test_a_dead_follower_leaves_the_isr_and_the_leader_stays() -> None:
    current = LeaderAndIsr(1, 3, (1, 2, 3), 5, 1)
    decision = decide_leader((1, 2, 3), current, online=frozenset({1, 3}), unclean=False)
    assert (decision.leadership.leader, decision.leadership.isr) == (1, (1, 3))


def test_when_all_of_the_isr_dies_it_is_kept_without_leader_and_any_member_may_lead_later() -> None:
    current = LeaderAndIsr(1, 3, (1, 2), 5, 1)
    gone = decide_leader((1, 2, 3), current, online=frozenset({3}), unclean=False).leadership
    assert (gone.leader, gone.isr, gone.leader_epoch) == (NO_LEADER, (1, 2), 4)
    back = decide_leader((1, 2, 3), gone, online=frozenset({2, 3}), unclean=False).leadership
    assert (back.leader, back.isr, back.leader_epoch) == (2, (2,), 5)


def test_recovering_stays_until_the_leader_says_otherwise() -> None:
    current = LeaderAndIsr(1, 3, (1,), 5, 1, LeaderRecoveryState.RECOVERING)
    gone = decide_leader((1, 2), current, online=frozenset({2}), unclean=False).leadership
    back = decide_leader((1, 2), gone, online=frozenset({1, 2}), unclean=False).leadership
    assert back.leader == 1 and back.recovery_state is LeaderRecoveryState.RECOVERING


def test_a_new_partition_is_led_by_its_first_online_replica_with_all_online_ones_in_sync() -> None:
    decision = decide_initial_leader((3, 1, 2), frozenset({1, 2}), controller_epoch=4)
    assert decision.leadership == LeaderAndIsr(1, 0, (1, 2), 0, 4)
    assert decide_initial_leader((3,), frozenset({1, 2}), controller_epoch=4) is None
