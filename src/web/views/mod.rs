//! The pages as plain structs: a handler fills one, askama draws it from `templates/`.
//! They hold words, numbers and types of the model; no database, no HTTP. What needs
//! thought, the sentence of a session and the buttons of its card, is a pure function here.

mod announcements;
mod answer;
mod answers;
mod audit;
mod calendar;
mod card;
mod chart;
mod cluster;
mod datasets;
mod diagnostics;
mod drawn;
mod entry;
mod environments;
mod error;
mod evaluation;
mod files;
mod groups;
mod health;
mod home;
mod images;
mod import;
mod job_list;
mod jobs;
mod layer;
mod lists;
mod machines;
mod meter;
mod model_details;
mod models;
mod moment;
mod more;
mod new_session;
mod node;
mod notice;
mod notification_form;
mod offboard;
mod packages;
mod people;
mod plots;
mod precisions;
mod predictions;
mod presets;
mod preview;
mod profiles;
mod queue;
mod quotas;
mod results;
mod runs;
mod search;
mod sentence;
mod session;
mod sessions;
mod settings;
mod slurm;
mod standalone;
mod storage_test;
mod sweeps;
mod toast;
mod trash;
mod usage;
mod webhooks;

pub use announcements::{
    AnnouncementForm, AnnouncementLine, AnnouncementPage, AnnouncementRow, AnnouncementStrip, AnnouncementsPage,
    MaintenanceForm, MaintenancePage,
};
pub use answer::{AnswerPage, LayerRow, ScoredLabel, said};
pub use answers::{AnswerCard, AnswersPage, ClassLink};
pub use audit::{AuditFilter, AuditLine, AuditPage};
pub use calendar::{Calendar, CalendarDay, CalendarRow};
pub use card::{Action, ButtonStyle, Card, CardContext, Target, badge as session_badge, resources_line};
pub use chart::{Amount, Bar, Chart, Mark};
pub use cluster::{ClusterPage, GpuHolder, GpuRow, IdleRow, Matrix, MatrixCell, NoGpus, NodeStrip, Spark, TimeChoice};
pub use datasets::{
    ClassBar, DatasetForm, DatasetInside, DatasetPage, DatasetRow, DatasetsPage, DrawnBox, ItemCard, ItemFilter,
    NewDatasetPage, SideBar,
};
pub use diagnostics::{
    CollectiveRow, DiagnosticsForm, DiagnosticsPage, DiagnosticsRow, DiagnosticsTables, HeatedCell, HistoryRow,
    LinkMatrix, Remedy, RunningTest, ShowDiagnostics, StorageForm, check_title, verdict_badge,
};
pub use drawn::{Drawing, DrawnObject, LegendLine, colour_of, legend_line, legend_of};
pub use entry::{ApiDocs, Login, Welcome};
pub use environments::{EnvironmentForm, EnvironmentRow, EnvironmentsPage};
pub use error::{ErrorLink, ErrorPage, Explanation, Problem, explain};
pub use evaluation::{HeatCell, HeatMap, MeasuredSplit, shown_metric};
pub use files::{Column, Crumb, FileItem, FileRow, FilesPage, RootTab, SelectedFiles, SelectedItem};
pub use groups::{GroupPage, GroupRow, GroupSessionRow, GroupsPage, InvitationRow, MemberRow};
pub use health::{HealthPage, LoopLine};
pub use home::{EnvironmentBanner, Home};
pub use images::{ImageForm, ImageRow, ImagesPage, PullProgress, StorageRow, StorageView};
pub use import::{ImportFault, ImportLink, ImportPage, ImportPlan, ImportRow};
pub use job_list::{JobRow, JobSearch, JobsPage, ProgressCell, outcome};
pub use jobs::{
    FollowedJob, JobForm, JobTab, LoggedOverview, MetricTile, NewJob, SeveralForm, ShowJob, SlurmForm, TimelineLine,
    WorkForm,
};
pub use layer::{Histogram, LayerPage, LayerValues};
pub use lists::{ColumnLabel, ListFrame, ShownColumns, SortChoice, SortHead, SortHeads};
pub use machines::{MachineRow, MachinesPage, NodeTable, OfferRow, PartitionRow, ReservationRow};
pub use meter::{Meter, StorageNote, Unit};
pub use model_details::{LayerLine, LayerTable, LineageRows, PreviewPage, PreviewPair, Relative};
pub use models::{
    ImportForm, ModelForm, ModelInside, ModelPage, ModelRow, ModelsPage, NewModelPage, TestRow, facts_of,
};
pub use moment::{Moment, Show};
pub use more::More;
pub use new_session::{
    AdmissionPreview, AppTile, EnvironmentChoice, FieldError, Fit, ImageChoice, NewSession, NewSessionForm, SizeTile,
    Slider, Sliders,
};
pub use node::{DrainAction, GpuTile, NodePage, NodeWork};
pub use notice::{NoticeLine, Notices};
pub use notification_form::{NotificationForm, NotificationRow};
pub use offboard::{HandOverForm, HandOverOutcome, HandOverRow, OffboardPage, StepRow};
pub use packages::{OverlayPanel, Packages};
pub use people::{
    BelongingRow, NewUserForm, PasswordLink, SOURCES, StateBadge, UserPage, UserRow, UserSearch, UsersPage, role_word,
    source_word,
};
pub use plots::{Plot, PlotLine, Plots, Reliability, ReliabilityBar, ScatterPlot};
pub use precisions::{BarAmount, PrecisionLine, PrecisionTable, PrecisionsPart, ScalingLine, ScalingTable};
pub use predictions::{PredictionCard, PredictionsPage};
pub use presets::{PresetForm, PresetList, PresetRow, PresetStart};
pub use preview::{Cell, CellOutput, Preview, TablePreview, TextPreview};
pub use profiles::{ProfileForm, ProfileRow, ProfilesPage};
pub use queue::{QueuePage, QueueRow};
pub use quotas::{
    ChangeLine, Choice, EnteredAmount, LimitBox, LimitSection, LimitsHead, LimitsPage, LimitsPreview, MarkBoxes,
    OverLine, PersonPanel, QuotaColumns, QuotaGroupRow, QuotaGroupsPage, QuotaRow, QuotaSearch, QuotaStrip, QuotasPage,
    Refusal, RefusedLine, SlurmPanel, Source, field_words, limit_words, over_verdict,
};
pub use results::{
    CellView, ColumnChoice, GroupView, Head, LINE_HEIGHT, LINE_WIDTH, ResultLineView, ResultsView, SpreadView, area,
    bounds, path,
};
pub use runs::{CurveRow, RunForm, RunPage, RunPart, RunRow, RunState, RunsCompared, RunsPage, number, passed_over};
pub use search::{FoundItem, SearchPage};
pub use sentence::{Piece, Sentence, SentenceContext, again_with_memory, as_sentence, sentence};
pub use session::{HistoryEntry, Progress, ShowSession, Step, gpus_are_counted, notes, plain_log};
pub use sessions::{BoardPage, SessionRow, SessionSearch, SessionsPage};
pub use settings::{NewToken, OwnGroup, RegistriesForm, RegistryRow, ScopeChoice, Settings, TokenForm, TokenRow};
pub use slurm::{SlurmField, SlurmFields, slurm_facts};
pub use standalone::{Ended, TerminalPage, WaitingPage};
pub use storage_test::{ShowStorage, StorageBar, StorageRate, TestedStorage};
pub use sweeps::{ShowSweep, SweepRow, SweepsPage, TaskRow};
pub use toast::Toast;
pub use trash::{TrashPanel, TrashRow};
pub use usage::{
    Budget, ComparePage, EndedLine, HistoryFilter, RangeChooser, RangeTab, SpanRow, UsagePage, UsageTabs, UsedRow,
    end_reason_word,
};
pub use webhooks::{WebhookForm, WebhookRow, WebhooksPage};
