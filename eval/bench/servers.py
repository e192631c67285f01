"""Checks of the servers of an evaluation before its first episode: they answer, and have the models."""

from __future__ import annotations

from codev_agents import Agent, ChatAgent
from codev_env.judges import ServedJudge, VLMJudge, get_judge
from codev_env.scoring import get_scorer
from codev_env.scoring.llm import AnswerReader


def check_servers(agent: Agent | None, judge: str, scorer: str) -> None:
    """Ask the servers of the agent, the judge and the scorer whether they have the models.

    A server that does not list its models passes. A judge or a scorer with a cache is not asked: it may hold every
    verdict.

    Args:
        agent: Plays the episodes; `None` for a model of this machine.
        judge: As in the options.
        scorer: As in the options.

    Raises:
        ConfigError: The agent's server does not have the model.
        AgentError, JudgeError, ScorerError: A server cannot be reached, or does not have the judge or scorer.
    """
    if isinstance(agent, ChatAgent):
        agent.check_model()
    asked = get_judge(judge)
    if isinstance(asked, VLMJudge):
        if asked.options.cache is None:
            asked.check_model()
    elif isinstance(asked, ServedJudge):
        asked.ping()
    reader = get_scorer(scorer)
    if isinstance(reader, AnswerReader) and reader.cache is None:
        reader.check_model()
