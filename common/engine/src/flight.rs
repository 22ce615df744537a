//! What an executor hands out to other processes of the cluster: sealed sums of a job, from its own folder.
//!
//! The library's service makes a path of what it is asked for, and a job's name may be a path itself. So this one looks at the name first. It takes the library's two calls for a part of a job, and no other call.

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo, SchemaResult, Ticket};
use ballista_core::serde::decode_protobuf;
use ballista_core::serde::scheduler::Action as Fetch;
use ballista_executor::flight_service::BallistaFlightService;
use tonic::{Request, Response, Status, Streaming};

use crate::guard::is_a_name;

/// The library's service behind a check.
pub(crate) struct Parts(BallistaFlightService);

impl Parts {
    /// Below this folder.
    pub(crate) fn new(work: String) -> Self {
        Self(BallistaFlightService::new(work))
    }
}

/// Whether a part of a job is asked for.
#[allow(clippy::result_large_err, reason = "the library's type")]
fn check(asked: &[u8]) -> Result<(), Status> {
    match decode_protobuf(asked) {
        Ok(Fetch::FetchPartition { job_id, .. }) if is_a_name(&job_id) => Ok(()),
        _ => Err(Status::invalid_argument("no part of a job")),
    }
}

#[allow(clippy::result_large_err, reason = "the library's type")]
fn no<T>() -> Result<T, Status> {
    Err(Status::unimplemented("an executor hands out parts of a job, and nothing else"))
}

#[tonic::async_trait]
impl FlightService for Parts {
    type DoActionStream = <BallistaFlightService as FlightService>::DoActionStream;
    type DoExchangeStream = <BallistaFlightService as FlightService>::DoExchangeStream;
    type DoGetStream = <BallistaFlightService as FlightService>::DoGetStream;
    type DoPutStream = <BallistaFlightService as FlightService>::DoPutStream;
    type HandshakeStream = <BallistaFlightService as FlightService>::HandshakeStream;
    type ListActionsStream = <BallistaFlightService as FlightService>::ListActionsStream;
    type ListFlightsStream = <BallistaFlightService as FlightService>::ListFlightsStream;

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        check(&request.get_ref().ticket)?;
        self.0.do_get(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        check(&request.get_ref().body)?;
        self.0.do_action(request).await
    }

    async fn handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Result<Response<Self::HandshakeStream>, Status> {
        no()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        no()
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        no()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        no()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        no()
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        no()
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        no()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        no()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use ballista_core::serde::protobuf;
    use prost::Message;
    use tonic::Code;

    use super::*;

    fn asked(job: &str) -> Vec<u8> {
        let fetch = protobuf::FetchPartition { job_id: job.into(), stage_id: 1, partition_id: 2, ..Default::default() };
        protobuf::Action { action_type: Some(protobuf::action::ActionType::FetchPartition(fetch)), ..Default::default() }.encode_to_vec()
    }

    /// A part of a job is handed out, and no file by a path; who asks for one does not learn whether it is there.
    #[tokio::test]
    async fn parts_of_jobs_are_handed_out_and_no_paths() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        for own in [work.join("job-1"), folder.path().join("other")] {
            fs::create_dir_all(own.join("1/2")).unwrap();
            fs::write(own.join("1/2/data.arrow"), "bytes").unwrap();
        }
        let service = Parts::new(work.to_str().unwrap().into());
        let act = |job: &str| service.do_action(Request::new(Action { r#type: "IO_BLOCK_TRANSPORT".into(), body: asked(job).into() }));
        let get = |job: &str| service.do_get(Request::new(Ticket { ticket: asked(job).into() }));
        assert!(act("job-1").await.is_ok());
        // The file is read, and is none of the library's.
        assert_ne!(get("job-1").await.err().unwrap().code(), Code::InvalidArgument);
        let absolute = folder.path().join("other");
        let paths = ["../other", "job-1/../../other", absolute.to_str().unwrap(), "/none", ""];
        for path in paths {
            assert_eq!(act(path).await.err().unwrap().code(), Code::InvalidArgument, "{path}");
            assert_eq!(get(path).await.err().unwrap().code(), Code::InvalidArgument, "{path}");
        }
        // The premise: the library's own service hands it out.
        let request = Request::new(Action { r#type: "IO_BLOCK_TRANSPORT".into(), body: asked("../other").into() });
        assert!(BallistaFlightService::new(work.to_str().unwrap().into()).do_action(request).await.is_ok());
    }
}
