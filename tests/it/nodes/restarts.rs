//! What survives what: a portal that forgot everything finds its agents again; an agent that
//! is gone says nothing of its workload's end, which is the scheduler's to tell; and of a
//! session that has ended nothing is reached any more.

use lyceum::{
    dial::dial,
    model::{EndReason, SessionState},
    protocol::node::Door,
};

use super::world::{OWNER, Stage, TRANSPORTS};
use crate::{
    needs,
    wait::{eventually, until},
};

#[tokio::test]
async fn a_restarted_portal_finds_its_agents() {
    if !needs::root() {
        return;
    }
    for transport in TRANSPORTS {
        let mut stage = Stage::new(transport).await;
        let agent = stage.session("ada", "jupyter").await;
        let app = stage.endpoint(&agent, Door::App);
        eventually("the first connection", async || dial(&app, OWNER).await.ok()).await;
        stage.restart_calls(agent.session).await;
        eventually("the agent is found again", async || dial(&app, OWNER).await.ok()).await;
        let (_, cookie) = stage.world.opened("ada", agent.session).await;
        let answer = stage.world.on_app(agent.session, &cookie).get(&format!("/s/{}/x", agent.session)).await;
        assert_eq!(answer.status(), 200, "{transport:?}");
    }
}

#[tokio::test]
async fn a_lost_agent_ends_no_session() {
    if !needs::root() {
        return;
    }
    for transport in TRANSPORTS {
        let stage = Stage::new(transport).await;
        let mut agent = stage.session("ada", "jupyter").await;
        let id = agent.session;
        let (_, cookie) = stage.world.opened("ada", id).await;
        let ada = stage.world.on_app(id, &cookie);
        assert_eq!(ada.get(&format!("/s/{id}/x")).await.status(), 200);
        agent.kill();
        let answer = ada.get(&format!("/s/{id}/x")).await;
        assert_eq!(answer.status(), 503, "{transport:?}");
        let portal = &stage.world.portal;
        portal.portal.sessions.reconcile().await;
        let session = portal.db().find_session(id).await.unwrap().unwrap();
        assert_eq!(session.state, SessionState::Running, "only the scheduler knows");
        assert!(session.unknown_since.is_some());
        // The app died with its agent.
        let socket = agent.run.join("app.sock");
        until("nobody listens", || std::os::unix::net::UnixStream::connect(&socket).is_err());
    }
}

#[tokio::test]
async fn of_an_ended_session_nothing_is_reached() {
    if !needs::root() {
        return;
    }
    for transport in TRANSPORTS {
        let stage = Stage::new(transport).await;
        let agent = stage.session("ada", "jupyter").await;
        let id = agent.session;
        let (_, cookie) = stage.world.opened("ada", id).await;
        let ada = stage.world.on_app(id, &cookie);
        assert_eq!(ada.get(&format!("/s/{id}/before")).await.status(), 200);
        let portal = &stage.world.portal;
        let ending = lyceum::db::sessions::Ending {
            reason: EndReason::Lost,
            exit_code: None,
            signal: None,
            at: portal.clock.now(),
            detail: String::new(),
        };
        assert!(portal.db().end_session(id, &ending).await.unwrap());
        portal.portal.sessions.reconcile().await;
        portal.portal.gateway.forget(id);
        // The agent lives on: its node has not heard of the end yet.
        let answer = ada.get(&format!("/s/{id}/after")).await;
        assert_ne!(answer.status(), 200, "{transport:?}");
        assert!(agent.requests().contains("/before") && !agent.requests().contains("/after"));
    }
}
