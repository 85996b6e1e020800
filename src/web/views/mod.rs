//! The pages as plain structs: a handler fills one, askama draws it from `templates/`.
//! They hold words, numbers and types of the model; no database, no HTTP. What needs
//! thought, the sentence of a session and the buttons of its card, is a pure function here.

mod announcements;
mod answer;
mod answers;
mod audit;
mod card;
mod chart;
mod cluster;
mod datasets;
mod entry;
mod error;
mod files;
mod groups;
mod health;
mod home;
mod jobs;
mod judged;
mod machines;
mod meter;
mod models;
mod moment;
mod new_session;
mod notice;
mod packages;
mod people;
mod precisions;
mod queue;
mod quotas;
mod results;
mod runs;
mod sentence;
mod session;
mod settings;
mod standalone;
mod sweeps;
mod told;
mod usage;

pub use announcements::{
    AnnouncementForm, AnnouncementLine, AnnouncementPage, AnnouncementRow, AnnouncementStrip, AnnouncementsPage,
    MaintenanceForm, MaintenancePage,
};
pub use answer::{AnswerPage, LayerRow, Said, said};
pub use answers::{AnswerCard, AnswersPage, ClassLink};
pub use audit::{AuditFilter, AuditLine, AuditPage};
pub use card::{Action, Card, CardContext, Look, Target, badge as session_badge, resources_line};
pub use chart::{Amount, Bar, Chart, Mark};
pub use cluster::{ClusterPage, GpuHolder, GpuRow, IdleRow, Matrix, MatrixCell, NoGpus, NodeStrip, Spark, TimeChoice};
pub use datasets::{
    ClassBar, DatasetForm, DatasetInside, DatasetPage, DatasetRow, DatasetsPage, DrawnBox, ItemCard, ItemFilter,
    NewDatasetPage, SideBar,
};
pub use entry::{ApiDocs, Login};
pub use error::{ErrorPage, Explanation, Problem, Way, explain};
pub use files::{Column, Crumb, FileItem, FileRow, FilesPage, RootTab};
pub use groups::{GroupPage, GroupRow, GroupSessionRow, GroupsPage, InvitationRow, MemberRow};
pub use health::{HealthPage, LoopLine};
pub use home::{EnvironmentBanner, Home};
pub use jobs::{
    Followed, JobForm, JobRow, JobSearch, JobsPage, NewJob, SeveralForm, ShowJob, SlurmForm, TimelineLine, WorkForm,
    outcome,
};
pub use judged::{LayerLine, LayerTable, LineageRows, PreviewPage, PreviewPair, Relative};
pub use machines::{MachineRow, MachinesPage, NodeTable, OfferRow, PartitionRow};
pub use meter::{Meter, StorageNote, Unit};
pub use models::{
    HeatCell, HeatMap, MeasuredSplit, ModelForm, ModelInside, ModelPage, ModelRow, ModelsPage, NewModelPage,
    PredictionCard, PredictionsPage, TestRow, facts_of,
};
pub use moment::{Moment, Show};
pub use new_session::{
    AppTile, EnvironmentChoice, FieldError, Fit, NewSession, NewSessionForm, SizeTile, Slider, Sliders, Verdict,
};
pub use notice::{NoticeLine, Notices};
pub use packages::{OverlayPanel, Packages};
pub use people::{
    BelongingRow, NewUserForm, StateBadge, UserPage, UserRow, UserSearch, UsersPage, role_word, source_word,
};
pub use precisions::{BarAmount, PrecisionLine, PrecisionTable, PrecisionsPart, ScalingLine, ScalingTable};
pub use queue::{QueuePage, QueueRow};
pub use quotas::{
    ChangeLine, Choice, LimitBox, LimitSection, LimitsHead, LimitsPage, LimitsPreview, MarkBoxes, OverLine,
    PersonPanel, QuotaColumns, QuotaGroupRow, QuotaGroupsPage, QuotaRow, QuotaSearch, QuotaStrip, QuotasPage, Refusal,
    RefusedLine, SlurmPanel, Source, Typed, field_words, limit_words, over_verdict,
};
pub use results::{
    CellView, ColumnChoice, GroupView, Head, LINE_HEIGHT, LINE_WIDTH, ResultLineView, ResultsView, SpreadView, area,
    bounds, path,
};
pub use runs::{CurveRow, RunForm, RunPage, RunPart, RunRow, RunState, RunsCompared, RunsPage, number, passed_over};
pub use sentence::{Circumstances, Piece, Sentence, again_with_memory, as_sentence, sentence};
pub use session::{Happening, Progress, ShowSession, Step, gpus_are_counted, notes, plain_log};
pub use settings::{NewToken, OwnGroup, ScopeChoice, Settings, TokenRow};
pub use standalone::{Ended, TerminalPage, Waiting};
pub use sweeps::{ShowSweep, SweepRow, SweepsPage, TaskRow};
pub use told::{Told, ToldRow};
pub use usage::{
    Budget, ComparePage, EndedLine, HistoryFilter, RangeChooser, RangeTab, SpanRow, UsagePage, UsageTabs, UsedRow,
    end_reason_word,
};
